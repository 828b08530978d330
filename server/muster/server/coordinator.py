"""The driver of the rounds: it does what the tables decide.

Everything here runs on the server's event loop. Arithmetic on large vectors and the ledger run in
one worker thread, one thing at a time.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from muster.common import seeds
from muster.common.clock import Clock
from muster.common.errors import Diverged, MusterError, RunFailed
from muster.common.exchange import (
    Answer,
    Call,
    Commit,
    Decision,
    Key,
    Outcome,
    Reason,
    Receipt,
    Update,
)
from muster.common.files import write_atomic
from muster.common.schedules import rate_at
from muster.common.tensors import Schema, Vector
from muster.server.accumulator import ExactSum, apply
from muster.server.aggregators import Contribution
from muster.server.config import ServerProcess
from muster.server.evaluation import Measured
from muster.server.evaluator import Evaluator
from muster.server.fleet import Device, Fleet
from muster.server.ledger import (
    AnswerRow,
    ContributionRow,
    EvaluationRow,
    Ledger,
    Notes,
    RoundRow,
)
from muster.server.rounds import Event, Phase, Round, Rules
from muster.server.selection import Candidate
from muster.server.store import Store
from muster.server.uploads import Body, Spill
from muster.wire import INLINE_BYTES
from muster.wire.bodies import checksum, encode_vector

T = TypeVar("T")


@dataclass(slots=True)
class Staged:
    """An accepted update that waits for its round: what the books and what the body say."""

    update: Update
    contribution: Contribution
    body: Body | Spill
    weight: float | None = None
    transfer_s: float = 0.0


class Coordinator:
    """Runs the rounds of one run, from what the ledger says was committed.

    Args:
        tell: records an event in the journal and shows it to who watches.
    """

    def __init__(
        self,
        config: ServerProcess,
        schema: Schema,
        fleet: Fleet,
        ledger: Ledger,
        store: Store,
        run_folder: Path,
        clock: Clock,
        tell: Callable[..., None],
    ) -> None:
        self.config = config
        self.settings = config.server
        self.schema = schema
        self.fleet = fleet
        self.committed = Commit()
        self.round: Round | None = None
        self._ledger = ledger
        self._store = store
        self._run_folder = run_folder
        self._clock = clock
        self._tell = tell
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="fold")
        self._rule = self.settings.aggregator
        self._lockstep = config.clock == "rounds"
        self._inline = schema.body_bytes <= INLINE_BYTES
        self._sum = ExactSum(schema.parameters)
        self._notes = Notes()
        self._changed = asyncio.Event()
        self._stop: tuple[str, str] | None = None
        self._past: Round | None = None
        self._new_round_state()

    def _new_round_state(self) -> None:
        self._staged: dict[str, Staged] = {}
        self._answered_at: dict[str, float] = {}
        self._folds: list[asyncio.Future[None]] = []

    # --- the run ---------------------------------------------------------------------------------

    async def run(self, evaluator: Evaluator, initial: Vector) -> tuple[str, str]:
        """Run every round that is missing; return the run's status and a sentence about it."""
        self._evaluator = evaluator
        await self._load(initial)
        try:
            return await self._run_rounds()
        except Diverged as error:
            return "diverged", str(error)
        finally:
            self._drop_round()

    async def _load(self, initial: Vector) -> None:
        ledger, rule = self._ledger, self._rule
        version = ledger.newest_version()
        if version is None:
            state = rule.initial_state(initial)
            ledger.enter_initial(self._store.put_model(0, initial), self._store.put_state(0, state))
            version = 0
        kept = dict(ledger.kept())
        self._store.clean(kept)
        self._kept = set(kept)
        self.committed = Commit(ledger.newest_round(), version)
        self._state = self._store.get_state(version)
        self._set_model(self._store.get_model(version))
        self._evaluations = ledger.evaluations()
        for old, round in kept.items():
            if old not in self._evaluations and (self._due(round) or old == version):
                await self._evaluate(old, round)

    def _set_model(self, model: Vector) -> None:
        self._model = model
        self.body = encode_vector(model)
        self._checksum = checksum(self.body)

    async def _run_rounds(self) -> tuple[str, str]:
        while self._stop is None and self.committed.round < self.settings.rounds:
            if await self._target_reached():
                return "completed", f"the target was reached after round {self.committed.round}"
            await self._run_round(self.committed.round + 1)
        if self._stop is not None:
            return self._stop
        await self._evaluate_last()
        return "completed", f"{self.committed.round} rounds"

    async def _run_round(self, number: int) -> None:
        opened_at, began = self._clock.now(), self._clock.monotonic()
        settings = self.settings
        rules = Rules(self._lockstep, settings.round_goal(), settings.deadline_s)
        self.round = round = Round(number, self.committed.version, rules)
        self._new_round_state()
        self._sum.clear()
        self._changed.clear()
        round.select(self._select(number))
        self._tell("round_opened", round=number, base_version=round.base_version,
                   called=len(round.cohort))  # fmt: skip
        for client in round.cohort:
            self._call(self.fleet.devices[client])
        await self._wait_for_close(round, began)
        if round.phase is Phase.COLLECTING:  # asked to stop
            round.happen(Event.ABANDONED)
            return
        await self._close(round, opened_at, began)

    def _select(self, number: int) -> list[str]:
        # In lockstep a device that is away for no reason of its own life is waited for.
        candidates = [
            Candidate(device.client, device.examples)
            for device in self.fleet.devices.values()
            if self._lockstep or device.outbox is not None
        ]
        draws = seeds.stream(self.config.seed, "selection", number)
        return self.settings.selection.select(candidates, draws)

    def _call(self, device: Device) -> None:
        if self.round is None or device.outbox is None or not self.round.expects(device.client):
            return
        call = Call(
            self.round.call(device.client),
            self.round.base_version,
            self.settings.deadline_s or 0.0,
            self._checksum,
        )
        model = (self.round.base_version, self.body) if self._inline else None
        device.send(self.committed, [call], model)

    async def _wait_for_close(self, round: Round, began: float) -> None:
        """Until the round closes or the run is to stop.

        Raises:
            RunFailed: lockstep, and no device has said a word for `stall_s`.
        """
        if self._lockstep:
            self._heard_at = began
            while not self._changed.is_set():
                limit = self._heard_at + self.settings.stall_s
                if not await self._changed_by(limit) and self._heard_at + self.settings.stall_s <= (
                    self._clock.monotonic()
                ):
                    raise RunFailed(self._stalled(round))
        elif self.settings.deadline_s is not None:
            if not await self._changed_by(began + self.settings.deadline_s):
                round.happen(Event.DEADLINE_PASSED)
        else:
            await self._changed.wait()

    async def _changed_by(self, instant: float) -> bool:
        """Wait until the round closes or `instant` (monotonic); whether it closed."""
        changed = asyncio.ensure_future(self._changed.wait())
        timer = asyncio.ensure_future(self._clock.sleep_until(instant))
        try:
            await asyncio.wait({changed, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            timer.cancel()
        return self._changed.is_set()

    def _stalled(self, round: Round) -> str:
        silent = [client for client, member in round.cohort.items() if not member.spoke]
        shown = ", ".join(silent[:5]) + (" …" if len(silent) > 5 else "")
        return (
            f"round {round.number} stalled: no word from any device for {self.settings.stall_s:g} s "
            f"while {len(silent)} of {len(round.cohort)} had not answered ({shown}). See their logs; "
            f"server.stall_s sets the patience"
        )

    # --- closing a round -------------------------------------------------------------------------

    async def _close(self, round: Round, opened_at: float, began: float) -> None:
        counted = [self._staged[client] for client in round.counted()]
        weights = await self._fold(counted)
        normaliser, weight_sum = 0.0, math.fsum(weights)
        if len(counted) >= self.settings.minimum:
            contributions = [staged.contribution for staged in counted]
            normaliser = self._rule.normaliser(weight_sum, contributions)
        if normaliser:
            model = await self._work(self._step, weight_sum, normaliser)
        else:
            counted, model = [], None
        round.happen(Event.FOLDED)
        version = round.base_version + (model is not None)
        closed_at = self._clock.now()
        row = RoundRow(
            round=round.number,
            base_version=round.base_version,
            version=version,
            outcome="aggregated" if model is not None else "empty",
            called=len(round.cohort),
            accepted=sum(
                m.answer is not None and m.answer.decision is Decision.ACCEPT
                for m in round.cohort.values()
            ),
            folded=len(counted),
            normaliser=normaliser if model is not None else None,
            weight_sum=weight_sum if model is not None else None,
            weight_max=max(weights) if model is not None else None,
            effective_size=_effective_size(weights) if model is not None else None,
            opened_at=opened_at,
            closed_at=closed_at,
            seconds=self._clock.monotonic() - began,
        )
        self._note_contributions(round, {staged.update.key.client for staged in counted}, closed_at)
        state = self._rule.next_state(self._state, model) if model is not None else self._state
        await self._work(self._commit, row, self._answers(round), self._take_notes(), model, state)
        round.happen(Event.COMMITTED)
        self._past = round
        self.committed = Commit(round.number, version)
        self._state = state
        if model is not None:
            self._set_model(model)
            self._kept.add(version)
        self._tell(
            "round_committed",
            round=round.number,
            version=version,
            outcome=row.outcome,
            called=row.called,
            accepted=row.accepted,
            folded=row.folded,
            bytes_up=sum(staged.update.length for staged in self._staged.values()),
            bytes_down=row.called * self.schema.body_bytes,
            seconds=round_to_us(row.seconds),
        )
        for staged in self._staged.values():
            staged.body.close()
        if model is not None and self._due(round.number):
            await self._evaluate(version, round.number)

    async def _fold(self, counted: list[Staged]) -> list[float]:
        """Fold what counts, unless it was folded on arrival; return the weights."""
        await asyncio.gather(*self._folds)
        if not self._folds_on_arrival():
            contributions = [staged.contribution for staged in counted]
            weights = self._rule.weigh(contributions, self._state) if counted else []
            for staged, weight in zip(counted, weights, strict=True):
                staged.weight = weight
                await self._work(self._fold_one, staged)
        return [staged.weight for staged in counted if staged.weight is not None]

    def _folds_on_arrival(self) -> bool:
        # In lockstep with a goal who counts is known only when all have spoken.
        decided_later = self._lockstep and self.settings.round_goal() is not None
        return self._rule.weights == "on-arrival" and not decided_later

    def _fold_one(self, staged: Staged) -> None:
        weight = staged.weight
        if weight is None or not (math.isfinite(weight) and weight >= 0):
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} gave {staged.contribution.client} the weight "
                f"{weight}; expected a finite number >= 0"
            )
        self._sum.add_blocks(staged.body.read, weight, staged.body.measure.largest)

    def _step(self, weight_sum: float, normaliser: float) -> Vector:
        rate = self.config.gradient_step
        assert self.round is not None
        return apply(
            self._model,
            self._sum,
            keep=1.0 if self._rule.weighs == "updates" else weight_sum / normaliser,
            scale=1.0 if rate is None else -rate_at(rate, self.round.number),
            normaliser=normaliser,
        )

    def _commit(
        self,
        row: RoundRow,
        answers: list[AnswerRow],
        notes: Notes,
        model: Vector | None,
        state: Any,
    ) -> None:
        stored = None if model is None else self._store.put_model(row.version, model)
        stored_state = None if model is None else self._store.put_state(row.version, state)
        forget = self._kept - self._evaluator.waiting() - {row.version, row.base_version}
        self._ledger.commit(row, answers, notes, stored, stored_state, sorted(forget))
        self._store.remove(forget)
        self._kept -= forget

    def _answers(self, round: Round) -> list[AnswerRow]:
        return [
            AnswerRow(
                round.number,
                client,
                member.answer.decision.value,
                member.answer.reason.value if member.answer.reason else None,
                member.answer.modelled_s,
                self._answered_at[client],
            )
            for client, member in round.cohort.items()
            if member.answer is not None
        ]

    def _note_contributions(self, round: Round, folded: set[str], at: float) -> None:
        for client, staged in self._staged.items():
            if client in folded:
                self._note(staged.update, "folded", None, at, staged.weight, staged.transfer_s)
            else:
                reason = Reason.GOAL_REACHED if self.settings.round_goal() else None
                self._note(staged.update, "dropped", reason, at, None, staged.transfer_s)

    def _note(
        self,
        update: Update,
        outcome: str,
        reason: Reason | None,
        at: float,
        weight: float | None = None,
        send_s: float = 0.0,
    ) -> None:
        base = self.committed.version if self.round is None else self.round.base_version
        self._notes.contributions.append(
            ContributionRow(
                round=update.key.round,
                client=update.key.client,
                attempt=update.key.attempt,
                base_version=base,
                staleness=0,
                weight=weight,
                examples=update.examples,
                mask_ratio=1.0,
                bytes_up=update.length,
                bytes_down=self.schema.body_bytes,
                train_s=update.train_s,
                transfer_s=update.fetch_s + send_s,
                loss=update.loss if math.isfinite(update.loss) else None,
                outcome=outcome,
                reason=reason.value if reason else None,
                at=at,
            )
        )

    def _take_notes(self) -> Notes:
        notes, self._notes = self._notes, Notes()
        return notes

    def _drop_round(self) -> None:
        for staged in self._staged.values():
            staged.body.close()
        self.round = None

    async def _work(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call, *args)

    # --- what devices say ------------------------------------------------------------------------

    def enrolled(self, device: Device) -> None:
        """A device enrolled."""
        fingerprint = json.dumps(asdict(device.fingerprint)) if device.fingerprint else "{}"
        self._notes.sessions.append((device.client, fingerprint, self._clock.now()))
        self._tell("enrolled", client=device.client)

    def attended(self, device: Device) -> None:
        """A device opened its stream: it is called if the round waits for it."""
        self._tell("attended", client=device.client)
        device.send(self.committed)
        self._call(device)

    def left(self, device: Device, why: str) -> None:
        """A device's stream ended."""
        self._tell("left", client=device.client, why=why)

    def answered(self, device: Device, answer: Answer) -> None:
        """A device answered a call, perhaps with a small update inline."""
        self.heard(device)
        round = self.round
        if round is None:
            return
        reason = round.answer(answer)
        if reason is None:
            self._answered_at[device.client] = self._clock.now()
            self._tell("answered", round=round.number, client=device.client,
                       decision=answer.decision.value,
                       reason=answer.reason.value if answer.reason else None)  # fmt: skip
        if answer.update is not None:
            receipt = self.judge(device, answer.update) or self.receive(
                answer.update, Body(answer.body, self.settings.guard.max_norm)
            )
            device.receipts.append(receipt)
            if receipt.outcome is Outcome.REFUSED:
                device.send(self.committed)
        self._look(round)

    def heard(self, device: Device) -> None:
        """A device gave a sign of life."""
        self._heard_at = device.heard_at = self._clock.monotonic()

    def judge(self, device: Device, update: Update) -> Receipt | None:
        """The receipt of an update whose body need not be looked at, or None."""
        refusal = self._unfit(device, update)
        if refusal is not None:
            reason, detail = refusal
            receipt = Receipt(update.key, Outcome.REFUSED, reason, detail)
        else:
            round = self._round_of(update.key)
            known = round.judge(update) if round else _not_open(update.key)
            if known is None:
                return None
            receipt = known
        self._record(update, receipt)
        return receipt

    def receive(self, update: Update, body: Body | Spill, transfer_s: float = 0.0) -> Receipt:
        """Judge a complete update; accepted ones are staged, and folded when the rule allows."""
        round = self._round_of(update.key)
        if round is None:
            body.close()
            return self._record(update, _not_open(update.key))
        if fault := body.measure.fault(update):
            receipt = round.refuse(update, *fault)
        else:
            receipt = round.receive(update)
        if receipt.outcome is Outcome.ACCEPTED and round is self.round:
            self._stage(update, body, transfer_s)
            self._tell("received", round=round.number, client=update.key.client,
                       attempt=update.key.attempt, bytes=update.length)  # fmt: skip
        else:
            body.close()
            self._record(update, receipt)
        self._look(round)
        return receipt

    def _stage(self, update: Update, body: Body | Spill, transfer_s: float) -> None:
        client = update.key.client
        if client in self._staged:  # the same body again, judged by its receipt
            return
        device = self.fleet.devices[client]
        contribution = Contribution(client, device.group, update.examples, staleness=0)
        staged = Staged(update, contribution, body, transfer_s=transfer_s)
        self._staged[client] = staged
        if self._folds_on_arrival():
            staged.weight = self._rule.weight(contribution, self._state)
            if self._inline:
                self._fold_one(staged)
            else:
                loop = asyncio.get_running_loop()
                self._folds.append(loop.run_in_executor(self._worker, self._fold_one, staged))

    def _unfit(self, device: Device, update: Update) -> tuple[Reason, str] | None:
        if update.key.client != device.client:
            return Reason.UNKNOWN_CLIENT, f"this session is of {device.client}"
        if update.length != self.schema.body_bytes:
            expected = f"{self.schema.body_bytes} bytes: {self.schema.parameters} float32"
            return Reason.LENGTH, f"{update.length} bytes; the schema asks for {expected}"
        if not 0 < update.examples <= device.examples:
            return Reason.EXAMPLES, f"{update.examples} examples; it holds {device.examples}"
        return None

    def _round_of(self, key: Key) -> Round | None:
        if self._past is not None and key.round == self._past.number:
            return self._past
        return self.round

    def _record(self, update: Update, receipt: Receipt) -> Receipt:
        """Enter in the ledger what did not count."""
        outcome = {
            Outcome.LATE: "late",
            Outcome.REFUSED: "refused",
            Outcome.ACCEPTED: "duplicate",
        }[receipt.outcome]
        if update.key.client in self.fleet.devices:
            self._note(update, outcome, receipt.reason, self._clock.now())
        self._tell(outcome, round=update.key.round, client=update.key.client,
                   reason=receipt.reason.value if receipt.reason else None)  # fmt: skip
        return receipt

    def _look(self, round: Round) -> None:
        if round is self.round and round.phase is not Phase.COLLECTING:
            self._changed.set()

    # --- evaluation ------------------------------------------------------------------------------

    def _due(self, round: int) -> bool:
        return round % self.settings.evaluate_every == 0

    async def _evaluate(self, version: int, round: int) -> None:
        if version == self.committed.version:
            offered = self._rule.result(self._state, self._model)
        else:
            state = self._store.get_state(version)
            offered = self._rule.result(state, self._store.get_model(version))
        await self._evaluator.submit(version, round, offered)

    async def evaluated(self, measured: Measured) -> None:
        """The evaluation's word on a version."""
        at = self._clock.now()
        row = EvaluationRow(
            measured.version,
            measured.round,
            measured.loss,
            measured.accuracy,
            measured.metrics,
            measured.seconds,
            at,
        )
        await self._work(self._ledger.evaluated, row)
        self._evaluations[measured.version] = (measured.loss, measured.accuracy)
        self._tell("evaluated", version=measured.version, round=measured.round,
                   loss=measured.loss, accuracy=measured.accuracy,
                   seconds=round_to_us(measured.seconds))  # fmt: skip

    async def _target_reached(self) -> bool:
        target = self.settings.target
        if target.loss is None and target.accuracy is None:
            return False
        await self._evaluator.drained()
        found = self._evaluations.get(self.committed.version)
        return found is not None and target.reached(*found)

    async def _evaluate_last(self) -> None:
        version = self.committed.version
        if version not in self._evaluations and version not in self._evaluator.waiting():
            await self._evaluate(version, self.committed.round)
        await self._evaluator.drained()

    # --- the end ---------------------------------------------------------------------------------

    def stop(self, status: str, detail: str) -> None:
        """End the run: the open round is dropped, everything committed stays."""
        self._stop = self._stop or (status, detail)
        self._changed.set()

    async def finish(self, status: str, detail: str) -> None:
        """Write the result, close the books, say goodbye."""
        offered = self._rule.result(self._state, self._model)
        write_atomic(self._run_folder / "model.safetensors", *self._store.model_file(offered))
        await self._work(self._ledger.note, self._take_notes())
        await self._work(self._ledger.end, status, detail, self._clock.now())
        self._tell("ended", status=status, detail=detail)
        for device in self.fleet.devices.values():
            device.send(self.committed, goodbye=status)


def _effective_size(weights: list[float]) -> float:
    squares = math.fsum(weight * weight for weight in weights)
    return math.fsum(weights) ** 2 / squares if squares else 0.0


def _not_open(key: Key) -> Receipt:
    return Receipt(key, Outcome.LATE, Reason.ROUND_CLOSED)


def round_to_us(seconds: float) -> float:
    """Seconds to the microsecond, for the journal."""
    return round(seconds, 6)
