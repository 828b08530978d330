"""The driver of the rounds: it does what the tables decide.

Everything here runs on the server's event loop, small models altogether. Arithmetic on large
vectors, their files and the ledger's transactions with them run in one worker thread.
"""

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from muster.common import seeds
from muster.common.clock import Clock
from muster.common.concurrency import run_beside
from muster.common.errors import Diverged, RunFailed, reason_of
from muster.common.exchange import Answer, Body, Call, Commit, Outcome
from muster.common.files import write_atomic
from muster.common.schedules import rate_at
from muster.common.tensors import Schema, Vector
from muster.server.account.ledger import (
    AnswerRow,
    EvaluationRow,
    Ledger,
    Notes,
    ParticipationRow,
    RoundRow,
)
from muster.server.account.store import Store
from muster.server.aggregators import Cohort, Need, State, Weighing
from muster.server.config import ServerProcess
from muster.server.evaluation.evaluator import Evaluator
from muster.server.evaluation.schedule import EvaluationSchedule
from muster.server.fleet import ConnectedPack, Fleet
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Population
from muster.server.rounds.closed_round import ClosedRound, told
from muster.server.rounds.lifecycle import Round, RoundEvent, RoundPhase, Rules
from muster.server.rounds.selection import Candidate
from muster.server.rounds.shared_links import SharedLinkModel
from muster.server.updates.exact_sum import apply
from muster.server.updates.receiver import Tell, UpdateReceiver
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates
from muster.server.updates.uploads import UploadFiles
from muster.wire import CHUNK_BYTES, INLINE_BYTES
from muster.wire.bodies import body_view, checksum, chunk_message, chunk_messages, chunks

log = logging.getLogger(__name__)

T = TypeVar("T")

_SETTLE_S = 2.0
"""On clocks on which devices go: after a restart, seconds without a device that comes in which all
are taken to have come who can."""

_LAST_UPLOADS_S = 5.0
"""When the run has ended, seconds in which what is under way of uploads that it cut off may still
arrive, and is counted."""


class Coordinator:
    """Runs the rounds of one run, from what the ledger says was committed.

    In lockstep, with models inline, the next round's calls go out before a round is written, so
    that devices work meanwhile. Nothing they say is heard before the round is durable.

    Attributes:
        intake: what devices say.
        committed: the newest durable round and version.
        evaluations: what is measured of the versions; there once `load` was called.
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
        tell: Tell,
    ) -> None:
        self.config = config
        self.settings = config.server
        self.schema = schema
        self.fleet = fleet
        self.committed = Commit()
        self._chunks: list[bytes] = []
        self._body = b""
        # Over a link a small model too travels beside the calls, which it would hold up.
        self._behind = frozenset(config.shared)
        self._called = Counter[str]()
        self._ledger = ledger
        self._store = store
        self._population = _population_of(config, fleet)
        self._participation = ParticipationHistory(_columns(config.x))
        self._warned = set[str]()
        self._run_folder = run_folder
        self._clock = clock
        self._tell = tell
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="fold")
        self._rule = self.settings.aggregator
        self._learns = Need.PARTICIPATION in self._rule.needs()
        self._lockstep = config.clock == "rounds"
        self._inline = schema.body_bytes <= INLINE_BYTES
        self._changed = asyncio.Event()
        self._stop: tuple[str, str] | None = None
        self._began_at: float | None = None
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed: ClosedRound | None = None
        self._last = Notes()  # what travelled when no further round was committed, once entered
        # With a target, whether there is a next round is known when this one has been evaluated.
        self._calls_ahead = (
            config.calls_ahead
            and self._inline
            and not self._behind
            and not self.settings.target.given
        )
        self.intake = UpdateReceiver(
            self.settings,
            self._lockstep,
            schema,
            config.compression,
            fleet,
            clock,
            self._worker,
            UploadFiles(run_folder / "models"),
            tell,
            self._changed.set,
            config.x,
            config.scale,
            shared=any(line.delays for line in config.shared.values()),
        )
        self._sharing = SharedLinkModel(
            config.shared, fleet, config.seed, schema.body_bytes, self.intake.update_bytes
        )

    # --- the run ---------------------------------------------------------------------------------

    def load(self, initial: Vector) -> None:
        """Take up the run where the ledger ends; the first time, enter `initial` as version 0."""
        ledger, rule = self._ledger, self._rule
        version = ledger.newest_version()
        if version is None:
            state = rule.initial_state(initial)
            ledger.enter_initial(self._store.put_model(0, initial), self._store.put_state(0, state))
            version = 0
        # In lockstep everybody tells anew before it matters.
        self.intake.books.restore(ledger.covariates(), () if self._lockstep else ledger.last_told())
        if self._learns:
            for _, rows in groupby(ledger.participation(), lambda row: row.round):
                self._participation.enter(self.intake.books.participation(rows))
        self._kept = dict(ledger.kept())
        self._store.clean(self._kept)
        self.committed = Commit(ledger.newest_round(), version)
        self.intake.newest_round = self.committed.round
        if ledger.has_begun():
            self._began_at = ledger.began_at(self._clock.now())
        self.evaluations = EvaluationSchedule(
            self.settings,
            ledger.evaluations(),
            self._offered,
            self._enter_evaluation,
            self._clock,
            self._tell,
        )
        self._set_model(version, self._store.get_model(version), self._store.get_state(version))

    def _set_model(self, version: int, model: Vector, state: State) -> None:
        self._version, self._model, self._state = version, model, state
        body = body_view(model)
        self._checksum = checksum(body)
        if self._inline:
            self._body = bytes(body)
        if self._behind or not self._inline:
            self._chunks.clear()  # before the new ones are made: both would not be needed at once
            self._chunks = chunk_messages(body)

    def model_from(self, version: int, offset: int, chunk_bytes: int) -> Iterable[bytes]:
        """The newest version as serialised messages of Fetch, from a byte of its body on.

        Args:
            chunk_bytes: at most so many in a message; `CHUNK_BYTES` are made once for all.

        Raises:
            KeyError: it is not the newest version.
            IndexError: its body ends before that byte.
        """
        body = body_view(self._model)
        if version != self._version:
            raise KeyError(version)
        if offset > len(body):
            raise IndexError(offset)
        first, rest = divmod(offset, CHUNK_BYTES)
        if chunk_bytes < CHUNK_BYTES or rest:
            return (chunk_message(chunk) for chunk in chunks(body, offset, chunk_bytes))
        return self._chunks[first:]

    async def run(self, evaluator: Evaluator) -> tuple[str, str]:
        """Run every round that is missing; return the run's status and a sentence about it.

        Raises:
            RunFailed: it cannot go on.
        """
        self.evaluations.begin(evaluator)
        bytes_up, bytes_down = self._ledger.traffic()
        self._tell(
            "server_started",
            run=self.config.run,
            round=self.committed.round,
            version=self.committed.version,
            population=len(self.fleet.devices),
            rounds=self.settings.rounds,
            bytes_up=bytes_up,
            bytes_down=bytes_down,
        )
        self.intake.progress_at = self._clock.monotonic()
        watchers = [self._watch_for_absence(), self._watch_for_failure(), self._prepare_rule()]
        if self._lockstep:
            watchers.append(self._watch_for_stalls())
        try:
            return await run_beside(self._run_rounds(), *watchers)
        except Diverged as error:
            return "diverged", str(error)
        finally:
            self._drop_open_round()

    def _drop_open_round(self) -> None:
        """Drop the round that the end of the run leaves open, if one is; what travelled counts."""
        round = self.intake.round
        if round is not None:
            if round.phase is RoundPhase.COLLECTING:
                round.happen(RoundEvent.ABANDONED)
            self.intake.books.inline_down += round.model_bytes()
        self._close_intake()

    def _close_intake(self) -> None:
        """Take no more updates for the open round, and tell devices that still send one to stop."""
        for receipt in self.intake.close():
            pack = self.fleet.devices[receipt.key.client].pack
            if pack is not None and pack.outbox is not None:
                pack.receipts.append(receipt)
                pack.send(self.committed)

    async def _prepare_rule(self) -> None:
        """Import what the rule needs while devices start."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._rule.prepare)

    def fail(self, error: Exception) -> None:
        """End the run with an error that happened outside its rounds, as in a call of a device."""
        if not self._failure.done():
            self._failure.set_exception(error)

    async def _watch_for_failure(self) -> None:
        await asyncio.shield(self._failure)

    async def _run_rounds(self) -> tuple[str, str]:
        for version, round in list(self._kept.items()):  # what an earlier incarnation left out
            await self.evaluations.after(round, version)
        await self._fleet_present()
        number = self.committed.round
        while self._stop is None and number < self.settings.rounds:
            if await self.evaluations.target_reached(self.committed.version):
                return "completed", f"the target was reached after round {number}"
            number += 1
            await self._run_round(number)
        await self._enter_closed()
        if self._stop is not None:
            return self._stop
        version = self.committed.version
        await self.evaluations.finish(self._kept[version], version)
        return "completed", f"{self.committed.round} rounds"

    async def _fleet_present(self) -> None:
        """Wait for the fleet to assemble: its start is no part of a round.

        Raises:
            RunFailed: nobody came within `stall_s`; in lockstep, not everybody.
        """
        stall_s, everybody = self.settings.stall_s, len(self.fleet.devices)
        limit = self._clock.monotonic() + stall_s
        if not self._lockstep and self._ledger.has_begun():
            await self._arrivals_over()
            return
        while self.fleet.present < everybody and self._stop is None:
            self._changed.clear()
            if await self._changed_by(limit):
                continue
            if self.fleet.present and not self._lockstep:
                break
            raise RunFailed(
                f"{self.fleet.present} of {everybody} devices came within {stall_s:g} s; see the "
                f"logs of the others. server.stall_s sets the patience"
            )
        if not self._lockstep:
            self._begin()

    async def _arrivals_over(self) -> None:
        """After a restart, wait for those who are not away: until nobody has come for a while."""
        while self.fleet.present < len(self.fleet.devices) and self._stop is None:
            self._changed.clear()
            if not await self._changed_by(self._clock.monotonic() + _SETTLE_S):
                return

    def _begin(self) -> None:
        """Scenario time 0: everybody has shown itself, and begins to live."""
        self._began_at = self._ledger.began_at(self._clock.now())
        for pack in self.fleet.packs():
            pack.send(self.committed, scenario_s=self._scenario_s())

    def _scenario_s(self) -> float | None:
        """Scenario seconds now, on the wall or scaled clock once they run."""
        if self._began_at is None:
            return None
        return max(0.0, self._clock.now() - self._began_at) * self.config.scale

    async def _run_round(self, number: int) -> None:
        opened_at, began = self._clock.now(), self._clock.monotonic()
        settings = self.settings
        extra_s = self._sharing.of_round(number) if self._lockstep else None
        rules = Rules(
            self._lockstep,
            settings.round_goal(),
            settings.deadline_s,
            extra_s,
            awaits_answers=bool(self.config.x),
        )
        round = Round(number, self._version, rules)
        await self._somebody_present(began)
        self.intake.open(round, self._state)
        self._changed.clear()
        try:
            round.select(self._select(number))
            self._count_calls(round)
            self._call(round.cohort)
        finally:
            if self._closed is not None:
                await asyncio.sleep(0)  # the streams' turn: their calls go out
                await self._enter_closed()
        self._tell(
            "round_opened",
            round=number,
            base_version=round.base_version,
            called=len(round.cohort),
            scenario_s=self._opened_s(number),
        )
        await self._wait_for_close(round, began)
        if round.phase is RoundPhase.COLLECTING:  # asked to stop
            round.happen(RoundEvent.ABANDONED)
            return
        self._closed = await self._close(round, opened_at, began)
        if not (self._calls_ahead and number < self.settings.rounds and self._stop is None):
            await self._enter_closed()

    def bulk(self, pack: ConnectedPack) -> bool:
        """Whether models and updates of a pack travel beside Attend, however small."""
        return pack.group in self._behind

    def _opened_s(self, number: int) -> float | None:
        """Scenario seconds at which a round opens."""
        return (number - 1) * self.config.round_s if self._lockstep else self._scenario_s()

    async def _somebody_present(self, began: float) -> None:
        """On clocks on which devices go: wait for one that can be called, for as long as a round
        may last. If none comes, the round is recorded as empty."""
        deadline_s = self.settings.deadline_s
        if self._lockstep or deadline_s is None:
            return
        while not self.fleet.present and self._stop is None:
            self._changed.clear()
            if not await self._changed_by(began + deadline_s):
                return

    def _select(self, number: int) -> list[str]:
        # In lockstep a device that is away for no reason of its own life is waited for.
        candidates = [
            Candidate(device.client, device.examples)
            for device in self.fleet.devices.values()
            if self._lockstep or device.present
        ]
        draws = partial(seeds.stream, self.config.seed, "selection", number)
        return self.settings.selection.select(candidates, draws)

    def _count_calls(self, round: Round) -> None:
        """How many devices of every group are called: who grants slots waits for so many."""
        if self._behind:
            called = (self.fleet.devices[client] for client in round.cohort)
            self._called = Counter(d.group for d in called if d.away_until < round.number)

    def _call(self, clients: Iterable[str]) -> None:
        """Call those of the clients who are present and whom the round still expects."""
        round = self.intake.round
        if round is None:
            return
        deadline_s, calls = (
            self.settings.deadline_s or 0.0,
            defaultdict[ConnectedPack, list[Call]](list),
        )
        foretold = []
        for client in clients:
            device = self.fleet.devices[client]
            if device.away_until >= round.number and round.expects(client):
                foretold.append(client)
            elif device.pack is not None and device.present and round.expects(client):
                key, of = round.call(client), self._called[device.group]
                call = Call(key, round.base_version, deadline_s, self._checksum, of)
                calls[device.pack].append(call)
        model = self._body if self._inline else None
        for pack, together in calls.items():
            inline = None if self.bulk(pack) else model
            sent = pack.send(self.committed, together, inline)
            if sent:
                round.cohort[together[0].key.client].model_bytes += sent
        self.intake.foretold(foretold)

    async def _wait_for_close(self, round: Round, began: float) -> None:
        """Until the round closes or the run is to stop."""
        if self._lockstep:
            await self._changed.wait()
        elif self.settings.deadline_s is None:
            await self._changed.wait()
        elif not await self._changed_by(began + self.settings.deadline_s):
            round.happen(RoundEvent.DEADLINE_PASSED)

    async def _watch_for_stalls(self) -> None:
        """In lockstep: one watch for the whole run, since a timer for each round costs a tenth of
        it.

        Raises:
            RunFailed: no device has said a word for `stall_s`.
        """
        while True:
            limit = self.intake.progress_at + self.settings.stall_s
            if self._clock.monotonic() >= limit:
                round = self.intake.round
                if round is not None and round.phase is RoundPhase.COLLECTING:
                    raise RunFailed(self._stalled(round))
                self.intake.progress_at = self._clock.monotonic()
            else:
                await self._clock.sleep_until(limit)

    async def _watch_for_absence(self) -> None:
        """A device that is silent for two heartbeats has left, whatever its connection says."""
        rtt_s = max((device.line.rtt_s for device in self.fleet.devices.values()), default=0.0)
        patience_s = 2 * self.settings.heartbeat_s + 2 * rtt_s
        while True:
            now = self._clock.monotonic()
            for pack in self.fleet.packs():
                if pack.outbox is not None and pack.heard_at + patience_s < now:
                    self.fleet.leave(pack, pack.outbox)
                    self.left(pack, f"it was silent for {patience_s:g} s")
            await self._clock.sleep_until(now + self.settings.heartbeat_s)

    async def _changed_by(self, instant: float) -> bool:
        """Wait until something changed or `instant` (monotonic) is reached; whether it changed."""
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
            f"round {round.number} stalled: no device answered for {self.settings.stall_s:g} s; "
            f"{len(silent)} of {len(round.cohort)} have not ({shown}). See their logs; "
            f"server.stall_s sets the patience"
        )

    # --- closing a round -------------------------------------------------------------------------

    async def _close(self, round: Round, opened_at: float, began: float) -> ClosedRound:
        gathering = self.intake.gathering
        assert gathering is not None
        counted = await self.intake.counted()
        weighing = await self._weigh(gathering, counted)
        weights, normaliser = weighing.weights, weighing.normaliser
        model = await self._work(self._step, round, weights, normaliser) if normaliser else None
        if model is None and self._learns:
            self._participation.nobody()
        closed = ClosedRound(
            gathering,
            folded=() if model is None else counted,
            weights=weights,
            normaliser=normaliser,
            version=round.base_version + (model is not None),
            model=model,
            state=self._state if model is None else self._rule.next_state(weighing.state, model),
            opened_at=opened_at,
            closed_at=self._clock.now(),
            seconds=self._clock.monotonic() - began,
        )
        round.happen(RoundEvent.FOLDED)
        self._close_intake()
        if model is not None:
            self._set_model(closed.version, model, closed.state)
        return closed

    async def _enter_closed(self) -> None:
        """Make the round that was closed last durable, if it is not."""
        closed, self._closed = self._closed, None
        if closed is None:
            return
        books, gathering = self.intake.books, closed.gathering
        answers = gathering.answer_rows(books, closed.closed_at)
        gathering.enter(books, closed.folded, closed.closed_at)
        books.inline_down += gathering.round.model_bytes()
        notes = books.take(gathering.round.number)
        row = closed.row(notes.bytes_up, notes.bytes_down)
        await self._work(self._commit, row, answers, notes, closed.model, closed.state)
        gathering.round.happen(RoundEvent.COMMITTED)
        self._tell("round_committed", **told(row))
        if closed.model is not None:
            await self.evaluations.after(row.round, row.version)

    async def _weigh(self, gathering: RoundUpdates, counted: Sequence[PendingUpdate]) -> Weighing:
        """The weights of a round, with which what counts is folded; normaliser 0: it is empty."""
        contributions = [staged.contribution for staged in counted]
        if self._learns:
            counts = {contribution.client for contribution in contributions}
            books = self.intake.books
            rows = (
                ParticipationRow(row.round, row.client, row.client in counts, row.x, row.x_age_s)
                for row in gathering.answer_rows(books, self._clock.now())
            )
            self._participation.enter(books.participation(rows))
        if len(counted) < self.settings.minimum:
            return Weighing((), 0.0, self._state)
        number = gathering.round.number
        cohort = Cohort(number, contributions, self._population, self._participation)
        if self._rule.needs():  # fits and solvers take long, and devices go on talking
            loop = asyncio.get_running_loop()
            weighing = await loop.run_in_executor(
                self._worker, self._rule.weigh, cohort, self._state
            )
        else:
            weighing = self._rule.weigh(cohort, self._state)
        if len(weighing.weights) != len(counted):
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} gave {len(weighing.weights)} weights to "
                f"{len(counted)} updates"
            )
        await self.intake.fold(counted, weighing.weights)
        self.intake.books.estimates(number, weighing.estimates)
        for warning in set(weighing.warnings) - self._warned:
            self._warned.add(warning)
            self._tell("warned", round=number, by=self._rule.kind, warning=warning)
        return weighing

    def _step(self, round: Round, weights: Sequence[float], normaliser: float) -> Vector:
        rate = self.config.gradient_step
        weighs_updates = self._rule.weighs == "updates"
        return apply(
            self._model,
            self.intake.sum,
            keep=1.0 if weighs_updates else math.fsum(weights) / normaliser,
            # Devices that return gradients leave the step, and its sign, to the server.
            scale=1.0 if rate is None else -rate_at(rate, round.number),
            normaliser=normaliser,
        )

    def _commit(
        self,
        row: RoundRow,
        answers: list[AnswerRow],
        notes: Notes,
        model: Vector | None,
        state: State,
    ) -> None:
        stored = stored_state = None
        if model is not None:
            stored = self._store.put_model(row.version, model)
            stored_state = self._store.put_state(row.version, state)
        needed = {row.version, row.base_version, *self.evaluations.waiting()}
        forget = sorted(self._kept.keys() - needed)
        self._ledger.commit(row, answers, notes, stored, stored_state, forget)
        # Here, where it is true: whoever waits for this may be cancelled meanwhile.
        self.committed = Commit(row.round, row.version)
        if model is not None:
            self._kept[row.version] = row.round
        self._store.remove(forget)
        for version in forget:
            del self._kept[version]

    def _offered(self, version: int) -> Vector:
        """What the run would offer as its model if it ended with `version`."""
        if version == self._version:
            return self._rule.result(self._state, self._model)
        return self._rule.result(self._store.get_state(version), self._store.get_model(version))

    async def _enter_evaluation(self, row: EvaluationRow) -> None:
        await self._work(self._ledger.evaluated, row)

    async def _work(self, call: Callable[..., T], *args: Any) -> T:
        if self._inline:  # shorter than the way to the worker and back
            return call(*args)
        return await asyncio.get_running_loop().run_in_executor(self._worker, call, *args)

    # --- devices ---------------------------------------------------------------------------------

    def enrolled(self, pack: ConnectedPack) -> None:
        """Devices began a session."""
        self.intake.books.enrolled(pack)
        for client in pack.devices:
            self._tell("enrolled", client=client)

    def attended(self, pack: ConnectedPack) -> None:
        """Devices opened their stream: they are called if the round waits for them."""
        for client in pack.devices:
            self._tell("attended", client=client)
        pack.send(self.committed, scenario_s=self._scenario_s())
        self._call(pack.devices)
        if self.intake.round is None:
            self._changed.set()

    def left(self, pack: ConnectedPack, why: str) -> None:
        """The devices' stream ended."""
        for client in pack.devices:
            self._tell("left", client=client, why=why)

    def answered(self, pack: ConnectedPack, answers: Sequence[tuple[Answer, Body]]) -> None:
        """Devices answered calls, perhaps with small updates inline."""
        receipts = self.intake.answered(pack, answers)
        pack.receipts += receipts
        if any(receipt.outcome is Outcome.REFUSED for receipt in receipts):
            pack.send(self.committed)

    # --- the end ---------------------------------------------------------------------------------

    def stop(self, status: str, detail: str) -> None:
        """End the run: the open round is dropped, everything committed stays."""
        self._stop = self._stop or (status, detail)
        self._changed.set()

    async def finish(self, status: str, detail: str, peak_rss_mib: float) -> tuple[str, str]:
        """Write the result, close the account, say goodbye; return how the run ended.

        A part that fails, as on a full disk, keeps none of the others from being done, and makes
        the run a failed one.
        """
        parts: list[Callable[[], Awaitable[None]]] = [
            self._commit_ended,
            self._write_result,
            lambda: self._end_account(status, detail),
        ]
        for part in parts:
            try:
                await part()
            except Exception as error:
                log.error("the end of the run: %s", reason_of(error), exc_info=error)
                if status != "failed":
                    status, detail = "failed", reason_of(error)
        try:
            self._tell(
                "ended",
                status=status,
                detail=detail,
                bytes_up=self._last.bytes_up,
                bytes_down=self._last.bytes_down,
                server_peak_rss_mib=peak_rss_mib,
            )
        except OSError as error:
            log.error("the journal: %s", reason_of(error))
            status = "failed"
        for pack in self.fleet.packs():
            pack.send(self.committed, goodbye=status)
        return status, detail

    async def _commit_ended(self) -> None:
        """Wait for a commit that is under way: only then it is known what is committed."""
        await self._work(lambda: None)

    async def _write_result(self) -> None:
        offered = self._offered(self.committed.version)
        write_atomic(self._run_folder / "model.safetensors", *self._store.model_file(offered))

    async def _end_account(self, status: str, detail: str) -> None:
        last = await self.intake.last_notes(self._clock.monotonic() + _LAST_UPLOADS_S)
        await self._work(self._ledger.note, last)
        self._last = last
        forget = sorted(self._kept.keys() - {self.committed.version})
        await self._work(self._ledger.end, status, detail, self._clock.now(), forget)
        self._store.remove(forget)


def _population_of(config: ServerProcess, fleet: Fleet) -> Population:
    members = config.population
    return Population(
        [member.client for member in members],
        config.z,
        [member.z for member in members],
        fleet.devices,
        config.moments,
        config.oracle,
    )


def _columns(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Covariates X that any group has, in the order in which groups name them."""
    return list(dict.fromkeys(name for of_group in names.values() for name in of_group))
