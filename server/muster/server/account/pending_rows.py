"""What the next commit enters beside the model: sessions, answers, and what became of updates."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from muster.common.clock import Clock
from muster.common.errors import RemoteProtocolError
from muster.common.exchange import Decision, DeviceState, Observation, Reason, Update
from muster.common.tensors import Schema
from muster.server.account.rows import (
    AnswerRow,
    ContributionRow,
    EstimateRow,
    ParticipationRow,
    PendingTransaction,
    ToldRow,
)
from muster.server.account.traffic import Traffic
from muster.server.fleet import ConnectedPack, EnrolledDevice, Fleet
from muster.server.knowledge.participation import Seen
from muster.server.rounds.lifecycle import Round
from muster.server.updates.uploads import TransferCost

_Told = tuple[str | None, str | None, float | None]
"""What a device told of itself: state and X as JSON, and how many scenario seconds ago; None: not
known."""


class PendingRows:
    """Rows of the ledger that wait for its next transaction.

    Attributes:
        traffic: of models and updates that travel in chunks.
        inline_up, inline_down: bytes of the updates inside answers, and of the models inside calls,
            since the last transaction; of models, in rounds that have ended.

    Args:
        x_names: names of the covariates X by group.
        scale: scenario seconds per second, on clocks that run.
    """

    def __init__(
        self,
        schema: Schema,
        fleet: Fleet,
        x_names: Mapping[str, Sequence[str]],
        clock: Clock,
        scale: float,
    ) -> None:
        self._schema = schema
        self._fleet = fleet
        self._x_names = x_names
        self._clock = clock
        self._scale = scale
        self._notes = PendingTransaction()
        self.traffic = Traffic(schema.body_bytes, clock)
        self.inline_up = self.inline_down = 0

    def take(self, round: int) -> PendingTransaction:
        """What came in since the last time.

        Args:
            round: the newest round.
        """
        notes, self._notes = self._notes, PendingTransaction()
        notes.transfers += self.traffic.take(round)
        notes.bytes_up, notes.bytes_down = self.inline_up, self.inline_down
        self.inline_up = self.inline_down = 0
        for row in notes.transfers:
            if row.direction == "up":
                notes.bytes_up += row.bytes
            else:
                notes.bytes_down += row.bytes
        return notes

    def enrolled(self, pack: ConnectedPack) -> None:
        """Devices enrolled."""
        fingerprint, now = json.dumps(pack.fingerprint._asdict()), self._clock.now()
        for client, device in pack.devices.items():
            z = json.dumps(device.z, sort_keys=True)
            self._notes.sessions.append((client, fingerprint, now, z, device.capacity))

    def restore(self, covariates: Iterable[tuple[str, str]], told: Iterable[ToldRow]) -> None:
        """Take up what devices told an earlier incarnation: Z, and the last of state and X."""
        for client, z in covariates:
            if device := self._fleet.devices.get(client):
                device.z = orjson.loads(z)
        now, monotonic = self._clock.now(), self._clock.monotonic()
        for row in told:
            state = DeviceState(**orjson.loads(row.state)) if row.state else None
            x = tuple(orjson.loads(row.x).values()) if row.x else ()
            age_s = max(0.0, now - row.at) + row.age_s / self._scale
            device = self._fleet.devices[row.client]
            device.see(Observation(row.client, state, x), monotonic - age_s)

    def check(self, device: EnrolledDevice, x: Sequence[float]) -> None:
        """Check what a device tells of itself.

        Raises:
            RemoteProtocolError: X is not what the scenario says of the group.
        """
        names = self._x_names.get(device.group, ())
        if len(x) != len(names):
            raise RemoteProtocolError(
                f"{len(x)} covariates X of {device.client}; expected {len(names)}: "
                f"{', '.join(names) or 'none'}"
            )

    def answers(self, round: Round, answered_at: Mapping[str, float], at: float) -> list[AnswerRow]:
        """What was said to the calls of a round; `at` stands for an answer that has not come
        itself."""
        rows, durations = [], round.durations() if round.rules.extra_s else {}
        for client, member in round.cohort.items():
            if (answer := member.answer) is None:
                continue
            if answer.state is not None or answer.x:
                told: _Told = *self._written(client, answer.state, answer.x), 0.0
            else:
                told = self._last_known(self._fleet.devices[client])
            rows.append(
                AnswerRow(
                    round.number,
                    client,
                    answer.decision.value,
                    answer.reason.value if answer.reason else None,
                    *told,
                    durations.get(client, answer.modelled_s),
                    member.model_bytes,
                    answered_at.get(client, at),
                )
            )
        return rows

    def unheard(
        self, round: Round, decision: str, clients: Sequence[str], at: float
    ) -> list[AnswerRow]:
        """Of whom nothing was heard in a round, as they were last known: absent, or silent."""
        rows = []
        for client in clients:
            told = self._last_known(self._fleet.devices[client])
            member = round.cohort.get(client)
            model_bytes = member.model_bytes if member else 0
            rows.append(
                AnswerRow(round.number, client, decision, None, *told, None, model_bytes, at)
            )
        return rows

    def participation(self, rows: Iterable[ParticipationRow]) -> Iterator[Seen]:
        """Everybody in a round."""
        for row in rows:
            device = self._fleet.devices[row.client]
            x = orjson.loads(row.x) if row.x else None
            if x is None and not self._x_names.get(device.group):
                x = {}  # there is nothing to know
            yield Seen(device.index, row.took_part, x, row.x_age_s or 0.0)

    def estimates(self, round: int, found: Mapping[str, Any]) -> None:
        """What an aggregator's weights rest on."""
        self._notes.estimates += [
            EstimateRow(round, name, json.dumps(value)) for name, value in found.items()
        ]

    def _last_known(self, device: EnrolledDevice) -> _Told:
        if (seen := device.seen) is None:
            return None, None, None
        age_s = (self._clock.monotonic() - device.seen_at) * self._scale
        return *self._written(device.client, seen.state, seen.x), age_s

    def _written(
        self, client: str, state: DeviceState | None, x: Sequence[float]
    ) -> tuple[str | None, str | None]:
        """State and X as JSON."""
        names = self._x_names.get(self._fleet.devices[client].group, ())
        return (
            None if state is None else orjson.dumps(state._asdict()).decode(),
            orjson.dumps(dict(zip(names, x, strict=True))).decode() if x else None,
        )

    def aborts(self, round: Round, at: float) -> None:
        """Work that was accepted and given up."""
        for member in round.cohort.values():
            answer = member.answer
            if answer is not None and answer.decision is Decision.ABORT:
                given_up = Update(answer.key, 0, b"", 0, 0.0, 0.0, math.nan, answer.modelled_s)
                fate = "dropped", answer.reason, at
                self.contribution(given_up, round.base_version, *fate, TransferCost(), whole=False)

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
    ) -> None:
        """What became of an update.

        Args:
            model_bytes: of the model inside its call, if no other update is charged with it.
            whole: all of its body came, and it is as long as it should be.
        """
        up, down, send_s = cost
        self._notes.contributions.append(
            ContributionRow(
                round=update.key.round,
                client=update.key.client,
                attempt=update.key.attempt,
                base_version=base_version,
                staleness=0,
                weight=weight,
                examples=update.examples,
                mask_ratio=1.0,
                bytes_up=up,
                bytes_down=down + model_bytes,
                bytes_saved=self._schema.body_bytes - update.length if whole else 0,
                train_s=update.train_s,
                transfer_s=update.fetch_s + send_s,
                loss=update.loss if math.isfinite(update.loss) else None,
                outcome=outcome,
                reason=reason.value if reason else None,
                at=at,
            )
        )
