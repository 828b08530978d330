"""One history: a run with faults, from its first process to its last, in virtual time."""

import asyncio
import gc
import json
import logging
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from muster.client.processes.program import Pack
from muster.common.errors import MusterError
from muster.common.exchange import Reason
from muster.emulator.run_folder.folder import ADDRESS
from muster.server.evaluation.messages import Setup
from muster.server.fleet import devices
from muster.server.program import ServerEnvironment, serve
from muster.server.settings.process import ServerProcess
from muster.simulation.disk import Disk, reading
from muster.simulation.evaluation import Evaluate, SimulatedEvaluation, without_metrics
from muster.simulation.faults import (
    Break,
    ClockJump,
    DiskFull,
    Fault,
    GatewayDown,
    HistoryExtent,
    Kill,
    KillAt,
    Pause,
    PowerCut,
    RevokeAt,
    Rogue,
    ShortMessages,
)
from muster.simulation.moments import Moments
from muster.simulation.operator import revoke, revoked_of
from muster.simulation.programs import Programs
from muster.simulation.revealed import RevealedShares
from muster.simulation.rogue import RoguePack
from muster.simulation.slots import slots_of
from muster.simulation.virtual_time import SimulatedProcess, Stuck, VirtualClock, VirtualLoop
from muster.wire import messages
from muster.wire.in_memory import FrameFate, Host, InMemoryNetwork
from muster.wire.in_memory.frames import Frame, FrameKind

if TYPE_CHECKING:
    from muster.client.processes.config import PackProcess

MOST_S = 3000.0
"""Virtual seconds after which a history counts as stuck; one stall may last 120, and may recur."""

MOST_STEPS = 200_000
"""Callbacks after which a history counts as stuck."""

_AGAIN_S = 0.5
"""Seconds between the death of a process and its restart."""

_KEEPALIVE_S = 40.0

_MOST_AWAY_S = 115.0
"""A device that is away for longer may not come in time: `server.stall_s` is 120."""

_DRY_ROUNDS = 20
"""Rounds in a row that call devices, no honest one of which accepts, and in most of which one
declines a model that is worse than its own."""

_ANSWERS_OF_ROUNDS = """
    SELECT
        EXISTS (SELECT 1 FROM answers a WHERE a.round = r.round AND reason = :no_gain),
        EXISTS (
            SELECT 1 FROM answers a
            WHERE a.round = r.round AND decision IN ('accept', 'abort')
            AND client NOT IN (SELECT value FROM json_each(:hostile))
        )
    FROM rounds r WHERE called > 0 ORDER BY round DESC LIMIT :rounds
"""

RAN_DRY = "ran dry"
"""The status of a history that would go on with such rounds."""

_SILENT_JOURNAL = "the journal does not say"
_ENDED = b'{"event":"ended"'


@dataclass
class HistoryOutcome:
    """The outcome of a history.

    Attributes:
        extent: numbers of frames and callbacks.
        status: status with which the run ended.
        failures: the reason of each failure of the run before it was resumed.
        violations: violations of invariants, a sentence each.
        trace: a line for each event; empty unless the history is traced.
        reached: the names of the probes that it has reached, if it was completed.
        kills: every kill that makes a difference after the last kill of the history, if they are
            noted.
    """

    extent: HistoryExtent
    status: str = ""
    failures: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    reached: frozenset[str] = frozenset()
    kills: Sequence[Kill] = ()


class History:
    """A run in a folder of its own, with faults.

    Attributes:
        awaited: the kills and revocations whose event the journal has not told yet.
        missed: the kills whose process did not run at that moment.

    Args:
        folder: an empty folder, best in memory.
        seed: decides the order of processes, all delays, and which data a power cut leaves.
        traced: whether to keep a readable trace.
        most_s, most_steps: virtual seconds and callbacks after which the history counts as stuck.
        evaluation: what the evaluation process does with models.
        moments: whether to note the kills that make a difference.
    """

    def __init__(
        self,
        programs: Programs,
        folder: Path,
        seed: int,
        faults: Sequence[Fault] = (),
        traced: bool = False,
        *,
        most_s: float = MOST_S,
        most_steps: float = MOST_STEPS,
        evaluation: Callable[[Setup], Evaluate] = without_metrics,
        moments: bool = False,
    ) -> None:
        self.programs = programs
        self.folder = folder
        self.faults = list(faults)
        self._journal = folder / "journal.jsonl"
        self._random = Random(seed)
        strikes = [fault for fault in faults if isinstance(fault, DiskFull)]
        self._disk = Disk(folder, self._random, strikes, self._journal_written)
        self._loop = VirtualLoop(self._random, self._before_step, most_s)
        self._most_steps = most_steps
        self._evaluation = evaluation
        self._clock = VirtualClock(self._loop)
        self._group_of = {m.client: m.group for m in programs.server.population}
        self._slots = slots_of(programs.server.shared, programs.scenario.seed)
        self._network = InMemoryNetwork(self, _KEEPALIVE_S, self._loop)
        self._revealed = RevealedShares()
        clients = {pack.name: [d.client for d in pack.devices] for pack in programs.packs}
        self._moments = Moments(folder, clients, self._network.sent) if moments else None
        self._traced = traced
        self._frames = 0
        self._breaks = {fault.frame: fault for fault in faults if isinstance(fault, Break)}
        self._by_step: dict[int, list[Fault]] = {}
        self._by_process: dict[tuple[str, int], Fault] = {}
        self.awaited = [fault for fault in faults if isinstance(fault, KillAt | RevokeAt)]
        self.missed: list[KillAt] = []
        self._due: list[KillAt | RevokeAt] = []
        self._revokes = any(isinstance(fault, RevokeAt) for fault in faults)
        for fault in faults:
            if isinstance(fault, Kill | Pause):
                self._by_process[fault.process, fault.step] = fault
            elif isinstance(fault, PowerCut | GatewayDown | ClockJump):
                self._by_step.setdefault(fault.step, []).append(fault)
        self._steps = Counter[str]()
        self._running: dict[str, tuple[SimulatedProcess, asyncio.Task[Any]]] = {}
        self._unreachable: dict[str, float] = {}
        self._rogue = next((fault for fault in faults if isinstance(fault, Rogue)), None)
        self._evaluations: list[SimulatedEvaluation] = []
        self._stop: Callable[[], None] = lambda: None
        self._packs: dict[str, PackProcess] = {}
        self._killed = asyncio.Event()
        self._resumed_at = 0
        self._power_failed = False
        self._announced = 0  # the newest round that devices know as committed
        self.outcome = HistoryOutcome(HistoryExtent(0, 0, {}))

    # --- the history -----------------------------------------------------------------------------

    def play(self) -> HistoryOutcome:
        """Play the history to its end."""
        outcome = self.outcome
        logging.disable(logging.CRITICAL)
        try:
            with self._disk.mounted(), self._short_messages():
                asyncio.set_event_loop(None)
                try:
                    self._loop.run_until_complete(self._direct())
                except Stuck as stuck:
                    if self._ran_dry():
                        outcome.status = RAN_DRY
                    else:
                        said = f"the run does not end: {stuck}; {self._progress()}"
                        outcome.violations.append(said)
        finally:
            logging.disable(logging.NOTSET)
            asyncio.events._set_running_loop(None)
        for lost in self._loop.unclaimed():
            outcome.violations.append(f"an exception that nobody took: {lost}")
        outcome.violations += self._revealed.violations()
        outcome.extent = HistoryExtent(self._frames, self._loop.steps, dict(self._steps))
        if self._moments is not None:
            outcome.kills = self._moments.kills
        return outcome

    def close(self) -> None:
        """Release everything. Remove the run folder first, or dead processes could write to it."""
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # dead processes leave coroutines never awaited
                self._loop.abandon()
                gc.collect()
        finally:
            logging.disable(logging.NOTSET)

    async def _direct(self) -> None:
        """Start, restart and resume the run, as a supervisor does."""
        attempts = len(self.faults) + 2
        for _ in range(attempts):
            # Every start has new credentials, so a run that is resumed has no revoked ones.
            self._packs = {pack.name: pack for pack in self.programs.enter(self.folder)}
            status, detail = await self._run_once()
            self._trace(f"the run ended: {status}: {detail}")
            self.outcome.status = status
            if status != "failed":
                return
            if self._ran_dry():
                self.outcome.status = RAN_DRY
                return
            self.outcome.failures.append(detail)
            if not (self._is_full(detail) or self._excused(detail)):
                self.outcome.violations.append(f"the run failed: {detail}")
                return
            self._disk.full.clear()
        self.outcome.violations.append(f"the run failed {attempts} times: {detail}")

    def _is_full(self, detail: str) -> bool:
        """Whether the run failed because the disk was full, and says so."""
        reasons = "No space left on device", "disk is full", _SILENT_JOURNAL
        return bool(self._disk.full) and any(reason in detail for reason in reasons)

    def _excused(self, detail: str) -> bool:
        """Whether a fault explains that the run failed."""
        killed_evaluation = any(
            isinstance(f, Kill) and f.process == "evaluation" for f in self.faults
        )
        power_cut = any(isinstance(fault, PowerCut) for fault in self.faults)
        if (killed_evaluation or power_cut) and "evaluation process ended" in detail:
            return True
        if self._revokes and "lacks the sum with the update of" in detail:
            return True
        # A hostile device may hold up its own round if its connections also break.
        if self._rogue is not None and f" have not ({min(self._packs)})" in detail:
            return True
        return "server.stall_s sets the patience" in detail and self._away_s() >= _MOST_AWAY_S

    def _away_s(self) -> float:
        """The seconds for which all faults together can keep one device away."""
        pauses = (f for f in self.faults if isinstance(f, Pause) and f.process != "server")
        total = sum(pause.seconds for pause in pauses)
        total += sum(f.seconds for f in self.faults if isinstance(f, GatewayDown))
        silent = sum(isinstance(f, Break) and f.how == "silently" for f in self.faults)
        return total + silent * _KEEPALIVE_S

    async def _run_once(self) -> tuple[str, str]:
        """Start all processes and restart killed ones until the server ends by itself.

        Returns:
            The status of the run, and its detail.
        """
        self._resumed_at = _bytes_in(self._journal)
        self._start_server()
        for name in self._packs:
            self._start_pack(name)
        while (ended := await self._restart_dead()) is None:
            if self._dead():
                continue
            self._killed.clear()
            waiting = {task for _, task in self._running.values()}
            killed = asyncio.ensure_future(self._killed.wait())
            await asyncio.wait({killed, *waiting}, return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
        await self._all_leave()
        return ended

    async def _restart_dead(self) -> tuple[str, str] | None:
        """Restart processes that were killed or died.

        Returns:
            The status and detail of the run if the server has ended it, else None.
        """
        for name in self._dead():
            process, task = self._running.pop(name)
            if process.alive:
                self._end(process)
                if name == "server":
                    return self._server_result(task)
                if (error := _error_of(task)) is not None and name not in self._revoked():
                    self.outcome.violations.append(f"{name} died: {error!r}")
            result = self._ended_in_journal()
            if result is not None and name != "server":
                continue
            if name == "server" and result is not None:
                return result
            await asyncio.sleep(_AGAIN_S)
            if name == "server":
                self._start_server()
            elif name in self._packs.keys() - self._revoked() and self._ended_in_journal() is None:
                self._start_pack(name)
        if self._power_failed:  # after a power cut, all processes of the run are started again
            self._power_failed = False
            gone = self._running.keys() | self._revoked()
            for name in [name for name in self._packs if name not in gone]:
                self._start_pack(name)
        return None

    def _revoked(self) -> set[str]:
        """The processes that the operator has revoked since the run was begun or resumed."""
        return revoked_of(self.folder, self._packs) if self._revokes else set()

    def _dead(self) -> list[str]:
        """The names of processes that were killed or have ended."""
        running = self._running.items()
        return [name for name, (process, task) in running if not process.alive or task.done()]

    def _is_running(self, name: str) -> bool:
        return name in self._running and name not in self._dead()

    def _server_result(self, task: "asyncio.Task[Any]") -> tuple[str, str]:
        """The status and detail of the run, after the server's task has ended."""
        if (error := _error_of(task)) is not None:
            if not isinstance(error, MusterError | OSError | sqlite3.Error):
                self.outcome.violations.append(f"the server died: {error!r}")
            return "failed", str(error)
        result = self._ended_in_journal()
        if result is None:
            if "journal" not in self._disk.full:
                self.outcome.violations.append("the server ended, and the journal does not say how")
            return "failed", _SILENT_JOURNAL
        status, _ = result
        if (task.result() != 0) != (status == "failed"):
            self.outcome.violations.append(f"exit status {task.result()} of a run that {status}")
        return result

    def _ended_in_journal(self) -> tuple[str, str] | None:
        """The status and detail in the journal's last part, since the run was begun or resumed."""
        if not self._journal.exists():
            return None
        data = self._journal.read_bytes()[self._resumed_at :]
        # This is asked whenever a process ends, so it does not go through the lines of the rounds.
        if (at := data.find(_ENDED)) < 0:
            return None
        for line in data[data.rfind(b"\n", 0, at) + 1 :].splitlines():
            if line.startswith(_ENDED):
                with suppress(ValueError):
                    event = json.loads(line)
                    return event["status"], event["detail"]
        return None

    async def _all_leave(self) -> None:
        """Wait some seconds for devices to leave, as a supervisor does, and then end them."""
        waiting = {task for process, task in self._running.values() if process.alive}
        if waiting:
            await asyncio.wait(waiting, timeout=10.0)
        for name, (process, task) in self._running.items():
            error = _error_of(task) if process.alive and task.done() else None
            if error is not None and name not in self._revoked():
                self.outcome.violations.append(f"{name} died: {error!r}")
            self._end(process)
        self._running.clear()

    def _end(self, process: SimulatedProcess, sent: bool = False) -> None:
        self._loop.kill(process)
        self._network.kill(process.name, sent)
        if process.name == "server":
            for evaluation in self._evaluations:
                evaluation.die()
            self._disk.server_killed()
            self._check_announced()
        elif process.name in self._packs:
            self._disk.device_killed([d.client for d in self._packs[process.name].devices])

    def _check_announced(self) -> None:
        """Check that the ledger of a dead server has every round that devices know as committed."""
        path = self.folder / "ledger.sqlite"
        with suppress(sqlite3.OperationalError), closing(reading(path)) as ledger:
            (durable,) = ledger.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()
            if durable < self._announced:
                self.outcome.violations.append(
                    f"devices were told that round {self._announced} is committed; "
                    f"the ledger has {durable}"
                )

    # --- processes -------------------------------------------------------------------------------

    def _start_server(self) -> None:
        (self.folder / ADDRESS).unlink(missing_ok=True)

        def evaluation(config: ServerProcess, folder: Path) -> SimulatedEvaluation:
            made = SimulatedEvaluation(self._loop, self._random, self._evaluation)
            self._evaluations.append(made)
            return made

        def when_asked(stop: Callable[[], None]) -> None:
            self._stop = stop

        environment = ServerEnvironment(
            self._clock,
            lambda credentials: Host(self._network, "server"),
            self._disk.connect,
            evaluation,
            when_asked,
        )
        self._start("server", lambda: serve(self.folder, environment))

    def _start_pack(self, name: str) -> None:
        config, task = self._packs[name], self.programs.task
        transport = Host(self._network, name)

        async def live() -> None:
            # The pack is made inside its process, as in a real run.
            if self._rogue is not None and name == min(self._packs):
                await RoguePack(config, task, self._clock, transport, self._rogue.kind).live()
            else:
                slots = self._slots.get(self._group_of[config.devices[0].client])
                await Pack(config, task, self._clock, transport, slots).live()

        self._start(name, live)

    def _start(self, name: str, main: Callable[[], Any]) -> None:
        self._trace(f"{name} starts")
        self._running[name] = self._loop.start(name, main)

    # --- faults ----------------------------------------------------------------------------------

    def _before_step(self, process: SimulatedProcess) -> None:
        """Apply the faults that are due. The loop calls this before every callback."""
        name, loop = process.name, self._loop
        if loop.steps > self._most_steps:
            raise Stuck(f"{self._most_steps} callbacks")
        while self._due:
            self._strike(self._due.pop(0))
        if self._by_step:
            for fault in self._by_step.pop(loop.steps, ()):
                self._strike(fault)
        if process is loop.outside:
            return
        self._steps[name] += 1
        if self._moments is not None and not self._by_process:
            self._moments.before(name, self._steps[name])
        if self._by_process:
            own = name, self._steps[name]
            if own in self._by_process:
                self._strike(self._by_process.pop(own), process)

    def _strike(self, fault: Fault, process: SimulatedProcess | None = None) -> None:
        """Apply a fault; `process` is the process of a fault that strikes one."""
        self._trace(f"FAULT {fault}")
        match fault:
            case Kill():
                assert process is not None
                if process.name == "evaluation":
                    for evaluation in self._evaluations:
                        evaluation.die()
                else:
                    self._kill(process, fault.sent)
            case KillAt() if self._is_running(fault.process):
                self._kill(self._running[fault.process][0])
            case KillAt():
                self.missed.append(fault)
            case RevokeAt():
                client = self._packs[fault.at.process].devices[0].client
                operator = Host(self._network, "operator")
                self._loop.start("operator", lambda: revoke(self.folder, operator, client))
            case PowerCut() if self._is_running("server"):
                for running, _ in list(self._running.values()):
                    self._kill(running)
                self._disk.power_cut()
                self._resumed_at = min(self._resumed_at, _bytes_in(self._journal))
                self._power_failed = True
            case Pause():
                assert process is not None
                self._pause(process, fault.seconds)
            case GatewayDown():
                self._unreachable[fault.device] = self._loop.time() + fault.seconds
                self._network.kill(fault.device)
            case ClockJump():
                self._clock.ahead_s += fault.seconds

    def _journal_written(self, data: bytes) -> None:
        """Take notice of the events for which faults wait."""
        for line in data.splitlines() if self.awaited else ():
            if not line:  # a new server ends the line that a power cut has torn
                continue
            event = json.loads(line)
            self._due += [fault for fault in self.awaited if fault.is_at(event)]
            self.awaited = [fault for fault in self.awaited if fault not in self._due]

    def _kill(self, process: SimulatedProcess, sent: bool = False) -> None:
        self._end(process, sent)
        self._loop.call_soon(self._killed.set, context=self._network.context)

    def _pause(self, process: SimulatedProcess, seconds: float) -> None:
        loop, network = self._loop, self._network
        loop.pause(process)
        loop.call_later(seconds, loop.resume, process, context=network.context)
        if seconds > _KEEPALIVE_S:  # a paused process answers no pings
            loop.call_later(_KEEPALIVE_S, network.cut, process.name, context=network.context)

    @contextmanager
    def _short_messages(self) -> Iterator[None]:
        """Let messages of the server be as short as a fault says, while the context is active."""
        usual = devices.MESSAGE_ITEMS
        for fault in self.faults:
            if isinstance(fault, ShortMessages):
                devices.MESSAGE_ITEMS = fault.calls
        try:
            yield
        finally:
            devices.MESSAGE_ITEMS = usual

    # --- the network -----------------------------------------------------------------------------

    def delay_s(self, source: str, target: str) -> float:
        """The delay of a frame: mostly short, sometimes long."""
        return self._random.random() ** 4 * 0.05

    def reachable(self, source: str, target: str) -> bool:
        """Whether a connection can be made now."""
        now = self._loop.time()
        return all(self._unreachable.get(host, 0.0) <= now for host in (source, target))

    def judge(self, source: str, target: str, method: str, frame: Frame) -> FrameFate:
        """Decide whether a frame arrives."""
        fault = self._breaks.get(self._frames)
        if self.faults:  # otherwise no server dies
            self._note_message(source, target, method, frame)
        if self._traced:
            size = f" {len(frame.payload)} B" if isinstance(frame.payload, bytes) else ""
            call = method.rpartition("/")[2]
            self._trace(f"frame {self._frames}: {source} -> {target} {call} {frame.kind}{size}")
        self._frames += 1
        if fault is None:
            return FrameFate.ARRIVES
        self._trace(f"FAULT {fault}")
        return {
            "before": FrameFate.BREAKS_BEFORE,
            "after": FrameFate.BREAKS_AFTER,
            "silently": FrameFate.VANISHES,
        }[fault.how]

    def _note_message(self, source: str, target: str, method: str, frame: Frame) -> None:
        """Remember which round a message announces as committed, and what it says of secure
        sums."""
        if frame.kind is not FrameKind.MESSAGE:
            return
        if source == "server" and method.endswith("/Attend"):
            message = messages.decode_to_device(frame.payload)
            committed = message.committed
            self._announced = max(self._announced, committed.round if committed else 0)
            self._revealed.asked(target, message)
        elif method.endswith("/Attend"):
            if (reply := messages.decode_from_device(frame.payload).reply) is not None:
                self._revealed.replied(source, reply[0])

    # --- trace and messages ----------------------------------------------------------------------

    def _trace(self, line: str) -> None:
        if self._traced:
            line = line.replace(f"{self.folder}/", "")  # which is another one in each history
            self.outcome.trace.append(
                f"{self._loop.time():9.3f} s  step {self._loop.steps:6}  {line}"
            )

    def _ran_dry(self) -> bool:
        """Whether rational devices have left for good, and those that stay are too few for another
        version. Such a run goes on until its server gives up, after many rounds."""
        if not self.programs.scenario.server.mode.counts_versions:
            return False
        with suppress(sqlite3.Error), closing(reading(self.folder / "ledger.sqlite")) as ledger:
            values = {
                "no_gain": Reason.NO_GAIN.value,
                "hostile": json.dumps(self._hostile),
                "rounds": _DRY_ROUNDS,
            }
            newest = ledger.execute(_ANSWERS_OF_ROUNDS, values).fetchall()
            declined = sum(no_gain for no_gain, _ in newest)
            return declined > _DRY_ROUNDS / 2 and not any(worked for _, worked in newest)
        return False

    @property
    def _hostile(self) -> list[str]:
        """The devices of the hostile process, which accept whatever they are called for."""
        if self._rogue is None:
            return []
        return [device.client for device in self._packs[min(self._packs)].devices]

    def _progress(self) -> str:
        """The progress of the run, for a message."""
        path = self.folder / "ledger.sqlite"
        with suppress(sqlite3.Error), closing(reading(path)) as ledger:
            rounds = ledger.execute("SELECT count(*) FROM rounds").fetchone()[0]
            return f"{rounds} of {self.programs.scenario.server.rounds} rounds are committed"
        return "there is no ledger"


def _error_of(task: "asyncio.Task[Any]") -> BaseException | None:
    """The error with which the task of a process has ended. Nobody cancels it, but a call that was
    cancelled raises the same error."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _bytes_in(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
