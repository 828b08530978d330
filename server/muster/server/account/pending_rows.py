"""The rows that the next commit enters: sessions, answers, contributions and estimates."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from muster.common.clock import Clock
from muster.common.device_metrics import metrics_from_bytes
from muster.common.errors import RemoteProtocolError
from muster.common.events import AppMeasured
from muster.common.exchange import Decision, DeviceState, Key, Observation, Reason, Update
from muster.common.facts import NO_FACTS, Facts
from muster.common.life_record import Report
from muster.server.account.ledger_reader import ParticipationRow, ReportRow
from muster.server.account.rows import AnswerRow, ContributionRow, EstimateRow, ValuationRow
from muster.server.account.traffic import TrafficAccount, TransferCost
from muster.server.account.transaction import PendingTransaction
from muster.server.fleet.devices import ConnectedPack, EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.knowledge.participation import Seen
from muster.server.rounds.cohort import CohortMember
from muster.server.rounds.life import LIVE, FleetLife
from muster.server.rounds.round import Round
from muster.tasks.replies import Measured


class PendingRows:
    """Rows of the ledger that wait for its next transaction.

    Attributes:
        traffic: the transfers of models and updates that travel in chunks.
        inline_up: bytes of the updates that came inside answers since the last transaction.
        inline_down: bytes of the models that went inside calls; the calls of a round are added when
            it has ended.

    Args:
        whole_bytes: length of an update of the whole model as float32.
        x_names: names of the covariates X by group.
        scale: scenario seconds per second, on clocks that run.
        mask_ratio: returns the share of the model that a device trains for a call; None: all
            devices train the whole model.
        life: may know what devices report, and what happened to devices that are not called.
    """

    def __init__(
        self,
        whole_bytes: int,
        fleet: Fleet,
        x_names: Mapping[str, Sequence[str]],
        clock: Clock,
        scale: float,
        mask_ratio: Callable[[Key], float] | None = None,
        life: FleetLife = LIVE,
    ) -> None:
        self._whole_bytes = whole_bytes
        self._fleet = fleet
        self._x_names = x_names
        self._clock = clock
        self._scale = scale
        self._mask_ratio = mask_ratio
        self._life = life
        self._transaction = PendingTransaction()
        self.traffic = TrafficAccount(clock)
        self.inline_up = self.inline_down = 0

    def take(self, round: int) -> PendingTransaction:
        """Return the rows that were added since the last call.

        Args:
            round: the newest round.
        """
        transaction, self._transaction = self._transaction, PendingTransaction()
        transaction.transfers += self.traffic.take(round)
        transaction.bytes_up, transaction.bytes_down = self.inline_up, self.inline_down
        self.inline_up = self.inline_down = 0
        for row in transaction.transfers:
            if row.direction == "up":
                transaction.bytes_up += row.bytes
            else:
                transaction.bytes_down += row.bytes
        return transaction

    def enrolled(self, pack: ConnectedPack) -> None:
        """Add the new session of a pack's devices."""
        fingerprint, now = json.dumps(pack.fingerprint._asdict()), self._clock.now()
        for client, device in pack.devices.items():
            z = None if device.z is None else json.dumps(device.z, sort_keys=True)
            self._transaction.sessions.append((client, fingerprint, now, z, device.capacity))

    def restore(self, covariates: Iterable[tuple[str, str]], reports: Iterable[ReportRow]) -> None:
        """Restore what devices reported to an earlier incarnation of the server.

        Args:
            covariates: (client, JSON of its covariates Z).
            reports: each device's newest report of its state and covariates X.
        """
        for client, z in covariates:
            if device := self._fleet.devices.get(client):
                device.z = orjson.loads(z)
        now, monotonic = self._clock.now(), self._clock.monotonic()
        for row in reports:
            state = DeviceState(**orjson.loads(row.state)) if row.state else None
            x = tuple(orjson.loads(row.x).values()) if row.x else ()
            age_s = max(0.0, now - row.at) + row.age_s / self._scale
            device = self._fleet.devices[row.client]
            device.see(Observation(row.client, state, x), monotonic - age_s)

    def check(self, device: EnrolledDevice, x: Sequence[float]) -> None:
        """Check the covariates X that a device reports.

        Raises:
            RemoteProtocolError: their number is not the one that the scenario gives the group.
        """
        names = self._life.reported(self._x_names.get(device.group, ()))
        if len(x) != len(names):
            raise RemoteProtocolError(
                f"{len(x)} covariates X of {device.client}; expected {len(names)}: "
                f"{', '.join(names) or 'none'}"
            )

    def answers(self, round: Round, answered_at: Mapping[str, float], at: float) -> list[AnswerRow]:
        """Return the rows of the devices that answered the calls of a round, and of those that it
        did not call although their answer is known.

        Args:
            answered_at: UNIX seconds of the answers, by client.
            at: UNIX seconds for devices that are not in `answered_at`, for example because they had
                said in an earlier round that they would be offline in this one.
        """
        rows: list[AnswerRow] = []
        times = round.times() if round.rules.sharing else {}
        for client, member in round.cohort.items():
            if (answer := member.answer) is None:
                continue
            if member.entered:
                self._enter_resent(client, member)
                continue
            member.enter()
            if answer.valuation is not None:
                received, own, curve, *rest = answer.valuation
                fit = curve or (None,) * 4
                row = ValuationRow(member.round, client, received, own, *fit, *rest)
                self._transaction.valuations.append(row)
            recorded = self._life.recorded
            report = self._life.report(member.round, client) if recorded else None
            if report is None and (answer.state is not None or answer.x):
                report = *self._as_json(client, answer.state, answer.x), 0.0
            elif report is None:
                report = self._last_report(self._fleet.devices[client])
            rows.append(
                AnswerRow(
                    member.round,
                    client,
                    answer.decision.value,
                    answer.reason.value if answer.reason else None,
                    *report,
                    times[client].modelled_s if client in times else answer.modelled_s,
                    member.model_bytes,
                    answered_at.get(client, at),
                    answer.away_steps,
                    None if member.round == round.number else round.number,
                )
            )
        for known in self._life.uncalled(round.number, round.own()):
            fate = known.answer, known.reason, *known.report, known.modelled_s
            rows.append(AnswerRow(round.number, known.client, *fate, 0, at))
        return rows

    def enter_resent(self, round: Round) -> None:
        """Add the bytes of models that were sent again to devices whose answers are entered."""
        for client, member in round.cohort.items():
            if member.entered:
                self._enter_resent(client, member)

    def _enter_resent(self, client: str, member: CohortMember) -> None:
        if resent := member.enter():
            self._transaction.resent.append((resent, member.round, client))

    def unheard(
        self, round: Round, decision: str, clients: Sequence[str], at: float
    ) -> list[AnswerRow]:
        """Return the rows of devices from which nothing was heard in a round.

        Each row has the device's last known state and covariates X.

        Args:
            decision: "absent" or "silent".
        """
        rows, called = [], round.own()
        for client in clients:
            report = self._last_report(self._fleet.devices[client])
            member = called.get(client)
            model_bytes = member.model_bytes if member else 0
            rows.append(
                AnswerRow(round.number, client, decision, None, *report, None, model_bytes, at)
            )
        return rows

    def participation(self, rows: Iterable[ParticipationRow]) -> Iterator[Seen]:
        """Decode rows of the ledger for the history of participation."""
        for row in rows:
            device = self._fleet.devices[row.client]
            x = orjson.loads(row.x) if row.x else None
            if x is None and not self._x_names.get(device.group):
                x = {}  # the group has no covariates X
            yield Seen(device.index, row.took_part, x, row.x_age_s or 0.0)

    def estimates(self, round: int, estimates: Mapping[str, Any]) -> None:
        """Add the estimates, by name, from which the aggregator computed a round's weights."""
        self._transaction.estimates += [
            EstimateRow(round, name, json.dumps(value)) for name, value in estimates.items()
        ]

    def measured(self, round: int, metrics: Measured) -> None:
        """Add what the server side of an app measured of the version of a round."""
        if metrics:
            self.estimates(round, {AppMeasured.name: metrics})

    def _last_report(self, device: EnrolledDevice) -> Report:
        seen = device.seen
        if seen is None or (seen.state is None and not seen.x):
            return None, None, None
        age_s = (self._clock.monotonic() - device.seen_at) * self._scale
        return *self._as_json(device.client, seen.state, seen.x), age_s

    def _as_json(
        self, client: str, state: DeviceState | None, x: Sequence[float]
    ) -> tuple[str | None, str | None]:
        """Return the JSON of a state, and of the covariates X by name."""
        names = self._x_names.get(self._fleet.devices[client].group, ())
        return (
            None if state is None else orjson.dumps(state._asdict()).decode(),
            orjson.dumps(dict(zip(names, x, strict=True))).decode() if x else None,
        )

    def aborts(self, round: Round, at: float) -> None:
        """Add the calls of a round that devices accepted and then gave up, as dropped."""
        for client, member in round.cohort.items():
            answer = member.answer
            if answer is not None and answer.decision is Decision.ABORT:
                fate = answer.reason, at, answer.modelled_s, answer.detail
                self.without_update(client, member, *fate)

    def without_update(
        self,
        client: str,
        member: CohortMember,
        reason: Reason | None,
        at: float,
        modelled_s: float = 0.0,
        error: str = "",
    ) -> None:
        """Add an assignment that ended without an update, as dropped.

        Args:
            error: the error for which the device gave up; empty without one.
        """
        key = Key(client, member.round, member.attempt)
        nothing = Update(key, 0, b"", 0, 0.0, 0.0, math.nan, modelled_s)
        fate = "dropped", reason, at
        cost = TransferCost()
        self.contribution(
            nothing, member.base_version, *fate, cost, whole=False, error=error or None
        )

    def contribution(
        self,
        update: Update,
        base_version: int,
        outcome: str,
        reason: Reason | None,
        at: float,
        cost: TransferCost,
        model_bytes: int = 0,
        weight: float | None = None,
        whole: bool = True,
        round: int | None = None,
        staleness: int = 0,
        error: str | None = None,
    ) -> None:
        """Add the outcome of an update.

        Args:
            outcome: folded, late, duplicate, refused or dropped.
            cost: what travelled for the update, in chunks or inside the answer.
            model_bytes: bytes of the model inside its call, unless they are charged to another
                update.
            whole: whether all of its body came and has the right length.
            round: the round in which it counted; None: that of its call.
            staleness: its staleness when this was decided.
            error: the error in training for which there is no update.
        """
        up, down, send_s = cost
        ratio = 1.0 if self._mask_ratio is None else self._mask_ratio(update.key)
        metrics, facts = None, NO_FACTS
        if update.facts != NO_FACTS:
            metrics, facts = _received_metrics(update), Facts(*map(finite, update.facts))
        self._transaction.contributions.append(
            ContributionRow(
                round=update.key.round if round is None else round,
                client=update.key.client,
                call_round=update.key.round,
                attempt=update.key.attempt,
                base_version=base_version,
                staleness=staleness,
                weight=weight,
                examples=update.examples,
                mask_ratio=ratio,
                bytes_up=up,
                bytes_down=down + model_bytes,
                bytes_saved=self._whole_bytes - update.length if whole else 0,
                train_s=update.train_s,
                transfer_s=update.fetch_s + send_s,
                loss=update.loss if math.isfinite(update.loss) else None,
                outcome=outcome,
                reason=reason.value if reason else None,
                at=at,
                steps=update.steps,
                error=error,
                received_metrics=metrics,
                facts=facts,
            )
        )


def _received_metrics(update: Update) -> str | None:
    """JSON of the metrics that a device reports of the received model; None if there are none."""
    if update.facts.received_examples is None:  # what is reported is for the strategy of an app
        return None
    metrics = metrics_from_bytes(update.report)
    return json.dumps(metrics) if metrics else None


def finite(value: float | None) -> float | None:
    """`value` if it is a finite number, else None."""
    return value if value is not None and math.isfinite(value) else None
