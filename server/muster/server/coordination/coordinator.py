"""The coordinator: runs the main loop of the rounds and connects its parts.

Everything here runs on the server's event loop; `WorkerThread` runs long computations in a thread.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from muster.common.clock import Clock
from muster.common.concurrency import run_beside
from muster.common.errors import Diverged, RunFailed
from muster.common.events import Attended, Enrolled, Revoked, RoundOpened, ServerStarted, Tell
from muster.common.exchange import Answer, Commit
from muster.common.masks import Mask
from muster.common.tensors import Schema, Vector
from muster.server.account.ledger import Ledger
from muster.server.account.run_rows import EvaluationRow
from muster.server.account.store import Store
from muster.server.aggregation.aggregation import Aggregation
from muster.server.aggregation.versions import VERSIONS, ModelVersions
from muster.server.aggregators import Need
from muster.server.coordination.dispatch import Dispatch
from muster.server.coordination.ending import RunEnding
from muster.server.coordination.preparation import (
    calls_ahead,
    columns_of,
    formats_of,
    memory_of,
    population_of,
    restore_assignments,
    rules_of,
)
from muster.server.coordination.presence import Presence
from muster.server.coordination.round_commit import RoundCommit
from muster.server.coordination.scenario_time import ScenarioTime
from muster.server.coordination.shared_flows import links_of
from muster.server.evaluation.evaluator import Evaluator
from muster.server.evaluation.schedule import EvaluationSchedule
from muster.server.fleet.devices import ConnectedPack
from muster.server.fleet.failures import Failures
from muster.server.fleet.fleet import Fleet
from muster.server.fleet.patience import Patience
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.rounds.phases import RoundEvent, RoundPhase
from muster.server.rounds.round import Round
from muster.server.runtime.room_on_disk import NO_ROOM, RoomOnDisk
from muster.server.runtime.signals import RunSignals
from muster.server.runtime.worker import WorkerThread
from muster.server.settings.process import ServerProcess
from muster.server.strategy.driver import StrategyDriver
from muster.server.updates.kept import SUMS, UPDATES, KeptSums, KeptUpdates
from muster.server.updates.partial_sums import PartialSums, RunStops
from muster.server.updates.receiver import UpdateReceiver
from muster.server.updates.uploads import UploadFiles
from muster.wire import INLINE_BYTES

if TYPE_CHECKING:
    from muster.server.coordination.closed_round import ClosedRound


class Coordinator:
    """Runs the rounds of one run, from the newest round that the ledger has.

    In lockstep, if models travel inline, the server calls the devices of the next round before it
    writes the round that has closed, so that they work meanwhile. It reads nothing that they send
    before the closed round is durable.

    Attributes:
        receiver: receives the answers and updates of devices.
        versions: the versions of the model.
        evaluations: the schedule of the evaluations of versions; set by `load`.
        room: waits for room on the disk.
        sums: receives the sums of updates that processes hold.
        patience: the clock by which devices are silent for too long.

    Args:
        strategy: decides what the rounds do, in place of the scenario; None: none does.
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
        strategy: StrategyDriver | None = None,
    ) -> None:
        self.config = config
        self.settings = settings = config.server
        self.schema = schema
        self.fleet = fleet
        self._ledger = ledger
        self._clock = clock
        self._tell = tell
        self._strategy = strategy
        self._rule = settings.aggregator
        self._lockstep = lockstep = config.lockstep
        formats = formats_of(config, schema, fleet)
        inline = formats.whole_bytes <= INLINE_BYTES
        linked = bool(config.shared)
        self._calls_ahead = inline and calls_ahead(config)
        self._closed: ClosedRound | None = None
        self._fail_to_train: set[str] = set()  # processes
        self._rules = rules_of(config, run_folder)
        self._signals = RunSignals(clock)
        shortest_s = min(settings.heartbeat_s, settings.stall_s, settings.transfer_idle_s)
        self.patience = patience = Patience(clock, shortest_s / 4)
        self._worker = worker = WorkerThread(inline)
        self._time = ScenarioTime(lockstep, config.round_s, config.scale, clock)
        self.versions = ModelVersions(
            ledger,
            store,
            self._rule,
            inline,
            chunked=linked or not inline,
            older=settings.mode.outlives_round(),
            kept_in=run_folder / VERSIONS,
            keep=settings.keep_versions,
        )
        files = UploadFiles(run_folder / "models")
        self.receiver = UpdateReceiver(
            config, formats, fleet, worker.executor, files, patience, clock, tell,
            self._signals.notify, self._rules.life,
        )  # fmt: skip
        self.room = RoomOnDisk(
            settings.stall_s, clock, tell, patience, self._signals, run_folder / NO_ROOM
        )
        self._shared_links = links_of(
            settings.mode, config.shared, fleet.devices, config.seed, formats.sizes, config.round_s
        )
        self._failures = failures = Failures(config.errors_in_a_row, fleet.devices)
        self._dispatch = Dispatch(
            config, fleet, self.receiver, self.versions, inline, failures, strategy
        )
        self.sums = PartialSums(
            formats.entries, fleet, files, self._dispatch.ask_for_sum, self._signals.stopping,
            patience,
        )  # fmt: skip
        secure = None
        if settings.secure and config.sum_format:
            # Other runs do without the library for cryptography.
            from muster.server.updates.secure_sums import SecureSums

            secure = SecureSums(
                settings.secure, config.sum_format, self._rule.kind, config.seed, lockstep,
                formats, settings.minimum,
                {client: device.index for client, device in fleet.devices.items()},
                self.sums, worker, tell,
            )  # fmt: skip
        self._presence = Presence(
            settings, lockstep, fleet, config.shared, self.receiver, self.versions, self._time,
            self._signals, patience, tell,
        )  # fmt: skip
        self._participation = ParticipationHistory(columns_of(config.x))
        self._aggregation = Aggregation(
            config, self.versions, self.receiver, population_of(config, fleet),
            self._participation, worker, self.room, self.sums, clock, tell,
            memory_of(config, schema.parameters, fleet, run_folder),
            KeptUpdates(run_folder / UPDATES) if settings.keep_updates else None,
            KeptSums(run_folder / SUMS) if settings.secure and settings.secure.keep_sums else None,
            strategy,
            secure,
        )  # fmt: skip
        self._commit = RoundCommit(
            settings.mode, config.round_s, self._aggregation, ledger, self.versions, self.receiver,
            self._shared_links, worker, self.room, failures, clock, tell,
        )  # fmt: skip
        self._ending = RunEnding(
            run_folder, ledger, store, self.versions, self.receiver, fleet, worker, self.room,
            clock, tell, settings.mode.outlives_round(),
        )  # fmt: skip
        self.bulk = self._dispatch.bulk
        self.part_for = self._dispatch.part_for
        self.left = self._presence.left
        self.stop = self._signals.stop
        self.finish = self._ending.finish
        self.close = worker.close

    def load(self, initial: Vector) -> None:
        """Continue the run where the ledger ends; the first time, store `initial` as version 0."""
        ledger, pending = self._ledger, self.receiver.pending
        self.versions.load(initial)
        self._aggregation.load(ledger)
        self._dispatch.load(ledger)
        if self._failures.limited:
            self._failures.enter(ledger.training_ends())
        # In lockstep every device reports its covariates again before they are needed.
        pending.restore(ledger.covariates(), () if self._lockstep else ledger.last_reports())
        if Need.PARTICIPATION in self._rule.needs():
            for _, rows in groupby(ledger.participation(), lambda row: row.round):
                self._participation.enter(pending.participation(rows))
        self.receiver.newest_round = self.committed.round
        self._time.load(ledger)
        if self.settings.mode.outlives_round():
            round = Round(self.committed.round + 1, self.versions.number, self._rules)
            restore_assignments(
                round, ledger, self._time, self.fleet, self._shared_links, self._lockstep
            )
            self.receiver.resume(round)
        self.evaluations = self._commit.evaluations = self._ending.evaluations = EvaluationSchedule(
            self.settings,
            ledger.evaluations(),
            ledger.versions_on_devices(),
            {client: device.group for client, device in self.fleet.devices.items()},
            self.versions.offered,
            self._ending.write_best,
            self._enter_evaluation,
            self._clock,
            self._tell,
        )

    @property
    def committed(self) -> Commit:
        """The newest durable round and version."""
        return self.versions.committed

    def fail(self, error: Exception) -> None:
        """End the run with an error from outside its rounds, for example from a device's call."""
        self._signals.fail(error)

    # --- the main loop ---------------------------------------------------------------------------

    async def run(self, evaluator: Evaluator) -> tuple[str, str]:
        """Run every round that is missing; return the run's status and a sentence about it.

        Raises:
            RunFailed: the run cannot go on.
        """
        self.evaluations.begin(evaluator)
        self._tell_start()
        if self._strategy is not None:
            await self._strategy.start(self.committed.round, self.versions.model)
        self.patience.renew()
        watchers = [
            self._presence.watch_for_absence(),
            self._signals.watch_for_failure(),
            self._worker.run_in_thread(self._aggregation.prepare),  # imports, while devices start
        ]
        if self._lockstep:
            watchers.append(self._presence.watch_for_stalls())
        try:
            return await run_beside(self._run_rounds(), *watchers)
        except Diverged as error:
            return "diverged", str(error)
        finally:
            self._drop_open_round()

    async def _run_rounds(self) -> tuple[str, str]:
        # A server that was killed may have left versions without their evaluations.
        for version, round in list(self.versions.kept.items()):
            await self.evaluations.after(round, version)
        await self._presence.assemble(self._ledger)
        number = self.committed.round
        while self._signals.stop_request is None and self._has_next(number):
            if why := await self.evaluations.enough(self.committed.version):
                return "completed", f"{why} after round {number}"
            if self._failures.nobody_left:
                raise RunFailed(
                    f"after round {number} every device is left out, because its training has "
                    f"failed too often in a row (groups.errors_in_a_row). See the logs of the "
                    f"devices, mend the code or the data, and start again"
                )
            number += 1
            await self._run_round(number)
        await self._commit_closed()
        if self._signals.stop_request is not None:
            return self._signals.stop_request
        version = self.committed.version
        await self.evaluations.finish(self.versions.kept[version], version)
        self.receiver.drop_open()
        of = f"{version} versions in " if self.settings.mode.counts_versions else ""
        return "completed", f"{of}{self.committed.round} rounds"

    async def _run_round(self, number: int) -> None:
        """Select, call, collect, close, commit; the steps of docs/rounds.md."""
        opened_at, began = self._clock.now(), self._clock.monotonic()
        await self._presence.wait_for_any_device(began)
        round = self._next_round(number)
        while self._dispatch.is_idle(round) and self._signals.stop_request is None:
            await self._presence.wait_for_step(round.step + 1)
            round = self._next_round(number)
        self.patience.renew()
        self.receiver.open(round, self.versions.state)
        self._signals.clear()
        try:
            self._dispatch.select(round)
            self._dispatch.call(round.uncalled())
        finally:
            if self._closed is not None:
                await asyncio.sleep(0)  # let the streams send the calls
                await self._commit_closed()
        opened = number, round.base_version, round.called(), round.scenario_s
        self._tell(RoundOpened(*opened))
        if round.phase is RoundPhase.COLLECTING:
            await self._collect(round, began)
        if round.phase is RoundPhase.COLLECTING:  # the run is to stop
            round.happen(RoundEvent.ABANDONED)
            return
        self._require_training(round)
        try:
            self._closed = await self._commit.close(round, opened_at, began)
        except RunStops:
            return
        self._dispatch.enter_counted(self._closed.folded)
        self._time.next_s = self._closed.next_s or 0.0
        if not (self._calls_ahead and self._has_next(number)):
            await self._commit_closed()

    def _require_training(self, round: Round) -> None:
        """Check that training does not fail where that ends the run: in a group of which the
        scenario says so, and before the first version on all devices. One process alone does not
        decide that it fails on all, unless there is no other.

        Raises:
            RunFailed: it has failed in such a group; or on all devices of the round, and in more
                than one process.
        """
        for answer in round.failed_trainings() if self.config.on_error_fail else ():
            self._require_no_error(answer, round.number)
        if self.versions.number or (failed := round.training_failed()) is None:
            return
        failing, devices = self._fail_to_train, self.fleet.devices.values()
        failing |= {pack.caller for pack in self.fleet.packs_of(round.cohort)}
        if len(failing) == 1 and not all(d.revoked or d.is_of(failing) for d in devices):
            return
        raise RunFailed(
            f"round {round.number}: training failed on all {len(round.cohort)} devices that were "
            f"called, and no version has been made yet. {failed.key.client}: {failed.detail}. "
            f"See the logs of the devices, mend the code or the data, and start again"
        )

    def _require_no_error(self, failed: Answer, round: int) -> None:
        client, group = failed.key.client, self.fleet.devices[failed.key.client].group
        if group in self.config.on_error_fail:
            raise RunFailed(
                f"round {round}: training failed on {client}: {failed.detail}. The run ends, "
                f'because its group {group} has on_error = "fail". See the log of '
                f"its process, mend the code or the data, and start again"
            )

    def _next_round(self, number: int) -> Round:
        """Make the next round, or take the one that has taken over open assignments."""
        open = self.receiver.round
        round = Round(number, self.versions.number, self._rules) if open is None else open
        opens_s = self._time.opens_s()
        opening = number, opens_s, self._time.step_at(opens_s)
        round.scenario_s, round.step = self._rules.life.opening(*opening)
        if self._strategy is not None:
            round.rules = self._rules.within(self._strategy.timeout_s)
        if self._lockstep and self._shared_links.delays:
            round.rules = replace(round.rules, sharing=self._shared_links.sharing_of(number))
        return round

    def _has_next(self, number: int) -> bool:
        if self._signals.stop_request is not None:
            return False
        if self._strategy is not None and self._strategy.push is None:
            return False
        if number >= self._rules.life.rounds:
            return False
        return self._count(number, self.versions.number) < self.settings.rounds

    def _count(self, round: int, version: int) -> int:
        """The count that `server.rounds` refers to."""
        return version if self.settings.mode.counts_versions else round

    async def _collect(self, round: Round, began: float) -> None:
        """Wait until the round closes or the run is to stop."""
        deadline_s = None if self._lockstep else round.rules.open_s(self.settings.deadline_s)
        if deadline_s is None:
            await self._signals.wait()
        elif not await self._signals.wait_until(began + deadline_s):
            round.happen(RoundEvent.DEADLINE_PASSED)

    async def _commit_closed(self) -> None:
        """Commit the newest closed round, if it is not committed yet."""
        closed, self._closed = self._closed, None
        if closed is not None:
            await self._commit.commit(closed)

    def _drop_open_round(self) -> None:
        """Drop the round that is open when the run ends, if there is one. The bytes that travelled
        for it count."""
        round = self.receiver.round
        if round is not None:
            if round.phase in (RoundPhase.SELECTING, RoundPhase.COLLECTING):
                round.happen(RoundEvent.ABANDONED)
            self.receiver.pending.inline_down += round.sent_bytes
        self.receiver.close_and_stop_senders(self.committed)

    async def _enter_evaluation(self, row: EvaluationRow) -> None:
        entering = self._ledger.evaluated, row
        await self.room.write("an evaluation", lambda: self._worker.run(*entering))

    # --- the journal -----------------------------------------------------------------------------

    def _tell_start(self) -> None:
        bytes_up, bytes_down = self._ledger.traffic()
        self._tell(
            ServerStarted(
                run=self.config.run,
                round=self.committed.round,
                version=self.committed.version,
                population=len(self.fleet.devices),
                rounds=self.settings.rounds,
                counts="versions" if self.settings.mode.counts_versions else "rounds",
                bytes_up=bytes_up,
                bytes_down=bytes_down,
            )
        )

    # --- devices ---------------------------------------------------------------------------------

    def model_from(
        self, version: int, offset: int, chunk_bytes: int, part: Mask | None
    ) -> Iterable[bytes]:
        """See `ModelVersions.chunks_from`."""
        return self.versions.chunks_from(version, offset, chunk_bytes, part)

    def enrolled(self, pack: ConnectedPack) -> None:
        """Record that devices began a session."""
        self.receiver.pending.enrolled(pack)
        for client in pack.devices:
            self._tell(Enrolled(client))

    def attended(self, pack: ConnectedPack) -> None:
        """Greet devices that opened their stream, and call them if the round waits for them."""
        for client in pack.devices:
            self._tell(Attended(client))
        pack.send(self.committed, scenario_s=self._time.now_s())
        self._dispatch.call(pack.devices)
        self.sums.attended(pack)
        self._notify_if_assembling()

    def _notify_if_assembling(self) -> None:
        """Wake what waits for devices. While a round collects, the signal would end it."""
        round = self.receiver.round
        if round is None or round.phase is RoundPhase.SELECTING:
            self._signals.notify()

    def revoked(self, process: str, clients: Sequence[str]) -> None:
        """Go on without the devices of a process, whose credentials have been revoked. The open
        round does not wait for them any more."""
        if all(self.fleet.devices[client].revoked for client in clients):
            return
        self._tell(Revoked(process, clients))
        self.fleet.revoke(clients)
        self._dispatch.call(clients)
        self.sums.revoked(clients)
        self._notify_if_assembling()
