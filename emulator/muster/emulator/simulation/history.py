"""One history: a run with faults, from its first process to its last, in virtual time."""

import asyncio
import gc
import json
import logging
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from muster.client.program import Pack
from muster.common.errors import MusterError
from muster.emulator.simulation.disk import Disk
from muster.emulator.simulation.evaluation import SimulatedEvaluation
from muster.emulator.simulation.faults import (
    Break,
    ClockJump,
    DiskFull,
    Fault,
    GatewayDown,
    HistoryExtent,
    Kill,
    Pause,
    PowerCut,
    Rogue,
)
from muster.emulator.simulation.fleet import Programs
from muster.emulator.simulation.rogue import RoguePack
from muster.emulator.simulation.virtual_time import (
    SimulatedProcess,
    Stuck,
    VirtualClock,
    VirtualLoop,
)
from muster.server.config import ServerProcess
from muster.server.program import ServerEnvironment, serve
from muster.wire import messages
from muster.wire.in_memory import FrameFate, InMemoryNetwork
from muster.wire.in_memory.frames import Frame, FrameKind

if TYPE_CHECKING:
    from muster.client.config import PackProcess

_MOST_S = 3000.0
"""Virtual seconds after which a history is stuck; the longest stall is 120, and may come often."""

_MOST_STEPS = 200_000
"""Callbacks after which it is."""

_AGAIN_S = 0.5
"""Between the death of a process and its restart."""

_KEEPALIVE_S = 40.0

_MOST_AWAY_S = 115.0
"""A device that is away for longer may not come in time: `server.stall_s` is 120."""

_SILENT_JOURNAL = "the journal does not say"


@dataclass
class HistoryOutcome:
    """What came of a history.

    Attributes:
        extent: how much happened.
        failures: how the run ended when it failed, before it was resumed.
        violations: what must not be.
        trace: what happened, a line each; empty unless it was asked for.
    """

    extent: HistoryExtent
    status: str = ""
    failures: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


class History:
    """A run in a folder of its own, with faults.

    Args:
        folder: empty; best in memory.
        seed: decides the order of processes, all delays, and what a power cut leaves.
        traced: keep a readable trace.
    """

    def __init__(
        self,
        programs: Programs,
        folder: Path,
        seed: int,
        faults: Sequence[Fault] = (),
        traced: bool = False,
    ) -> None:
        self.programs = programs
        self.folder = folder
        self.faults = list(faults)
        self._journal = folder / "journal.jsonl"
        self._random = Random(seed)
        strikes: dict[str, int] = {f.what: f.write for f in faults if isinstance(f, DiskFull)}
        self._disk = Disk(folder, self._random, strikes)
        self._loop = VirtualLoop(self._random, self._before_step, _MOST_S)
        self._clock = VirtualClock(self._loop)
        self._network = InMemoryNetwork(self, _KEEPALIVE_S, self._loop)
        self._traced = traced
        self._frames = 0
        self._breaks = {fault.frame: fault for fault in faults if isinstance(fault, Break)}
        self._by_step: dict[int, list[Fault]] = {}
        self._by_process: dict[tuple[str, int], Fault] = {}
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
        self._told = 0
        self.outcome = HistoryOutcome(HistoryExtent(0, 0, {}))

    # --- the history -----------------------------------------------------------------------------

    def play(self) -> HistoryOutcome:
        """Play the history to its end."""
        outcome = self.outcome
        logging.disable(logging.CRITICAL)
        try:
            with self._disk.mounted():
                asyncio.set_event_loop(None)
                try:
                    self._loop.run_until_complete(self._direct())
                except Stuck as stuck:
                    outcome.violations.append(f"the run does not end: {stuck}; {self._standing()}")
        finally:
            logging.disable(logging.NOTSET)
            asyncio.events._set_running_loop(None)
        for lost in self._loop.unclaimed():
            outcome.violations.append(f"an exception that nobody took: {lost}")
        outcome.extent = HistoryExtent(self._frames, self._loop.steps, dict(self._steps))
        return outcome

    def close(self) -> None:
        """Let go of everything; the run folder must be gone, or the dead would write to it."""
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the dead leave coroutines that nobody awaits
                self._loop.abandon()
                gc.collect()
        finally:
            logging.disable(logging.NOTSET)

    async def _direct(self) -> None:
        """What a supervisor does: start, restart, resume."""
        self._packs = {pack.name: pack for pack in self.programs.enter(self.folder)}
        attempts = len(self.faults) + 2
        for _ in range(attempts):
            status, detail = await self._run_once()
            self._tell(f"the run ended: {status}: {detail}")
            self.outcome.status = status
            if status != "failed":
                return
            self.outcome.failures.append(detail)
            if not (self._is_full(detail) or self._excused(detail)):
                self.outcome.violations.append(f"the run failed: {detail}")
                return
            self._disk.full.clear()
        self.outcome.violations.append(f"the run failed {attempts} times: {detail}")

    def _is_full(self, detail: str) -> bool:
        """Whether the run failed for want of room on the disk, and says so."""
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
        # A hostile device may hold up its own round, if its connections break too.
        if self._rogue is not None and f" have not ({min(self._packs)})" in detail:
            return True
        return "server.stall_s sets the patience" in detail and self._away_s() >= _MOST_AWAY_S

    def _away_s(self) -> float:
        """Seconds for which the faults together can keep one device away."""
        total = sum(f.seconds for f in self.faults if isinstance(f, Pause | GatewayDown))
        silent = sum(isinstance(f, Break) and f.how == "silently" for f in self.faults)
        return total + silent * _KEEPALIVE_S

    async def _run_once(self) -> tuple[str, str]:
        """Start all, restart what is killed, until the server ends by itself."""
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
        """Start again what was killed or died; how the run ended, if the server says so."""
        for name in self._dead():
            process, task = self._running.pop(name)
            if process.alive:
                self._end(process)
                if name == "server":
                    return self._said(task)
                if (error := task.exception()) is not None:
                    self.outcome.violations.append(f"{name} died: {error!r}")
            said = self._ended_in_journal()
            if said is not None and name != "server":
                continue
            if name == "server" and said is not None:
                return said
            await asyncio.sleep(_AGAIN_S)
            if name == "server":
                self._start_server()
            elif name in self._packs and self._ended_in_journal() is None:
                self._start_pack(name)
        if self._power_failed:  # whoever goes on with the run then starts all of it
            self._power_failed = False
            for name in [name for name in self._packs if name not in self._running]:
                self._start_pack(name)
        return None

    def _dead(self) -> list[str]:
        """Processes that were killed, or have ended."""
        running = self._running.items()
        return [name for name, (process, task) in running if not process.alive or task.done()]

    def _is_running(self, name: str) -> bool:
        return name in self._running and name not in self._dead()

    def _said(self, task: "asyncio.Task[Any]") -> tuple[str, str]:
        if (error := task.exception()) is not None:
            if not isinstance(error, MusterError | OSError | sqlite3.Error):
                self.outcome.violations.append(f"the server died: {error!r}")
            return "failed", str(error)
        said = self._ended_in_journal()
        if said is None:
            if "journal" not in self._disk.full:
                self.outcome.violations.append("the server ended, and the journal does not say how")
            return "failed", _SILENT_JOURNAL
        if (task.result() != 0) != (said[0] == "failed"):
            self.outcome.violations.append(f"exit status {task.result()} of a run that {said[0]}")
        return said

    def _ended_in_journal(self) -> tuple[str, str] | None:
        """How the run ended, as the journal says since it was begun or resumed."""
        if not self._journal.exists():
            return None
        for line in self._journal.read_bytes()[self._resumed_at :].splitlines():
            if line.startswith(b'{"event":"ended"'):
                with suppress(ValueError):
                    event = json.loads(line)
                    return event["status"], event["detail"]
        return None

    async def _all_leave(self) -> None:
        """After the run: devices have some seconds to leave, as under a supervisor."""
        waiting = {task for process, task in self._running.values() if process.alive}
        if waiting:
            await asyncio.wait(waiting, timeout=10.0)
        for name, (process, task) in self._running.items():
            if process.alive and task.done() and task.exception() is not None:
                self.outcome.violations.append(f"{name} died: {task.exception()!r}")
            self._end(process)
        self._running.clear()

    def _end(self, process: SimulatedProcess) -> None:
        self._loop.kill(process)
        self._network.kill(process.name)
        if process.name == "server":
            for evaluation in self._evaluations:
                evaluation.die()
            self._disk.server_killed()
            self._check_told()
        elif process.name in self._packs:
            self._disk.device_killed([d.client for d in self._packs[process.name].devices])

    def _check_told(self) -> None:
        """What devices were told is committed must be in the ledger of a server that is gone."""
        path = self.folder / "ledger.sqlite"
        with closing(sqlite3.connect(path)) as ledger, suppress(sqlite3.OperationalError):
            (durable,) = ledger.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()
            if durable < self._told:
                self.outcome.violations.append(
                    f"devices were told that round {self._told} is committed; "
                    f"the ledger has {durable}"
                )

    # --- processes -------------------------------------------------------------------------------

    def _start_server(self) -> None:
        (self.folder / "setup/address.json").unlink(missing_ok=True)

        def evaluation(config: ServerProcess, folder: Path) -> SimulatedEvaluation:
            made = SimulatedEvaluation(self._loop, self._random)
            self._evaluations.append(made)
            return made

        def when_asked(stop: Callable[[], None]) -> None:
            self._stop = stop

        around = ServerEnvironment(
            self._clock, self._network.host("server"), self._disk.connect, evaluation, when_asked
        )
        self._start("server", lambda: serve(self.folder, around))

    def _start_pack(self, name: str) -> None:
        config, task = self._packs[name], self.programs.task
        transport = self._network.host(name)

        async def live() -> None:
            # Made inside its process, as a real one is.
            if self._rogue is not None and name == min(self._packs):
                await RoguePack(config, task, self._clock, transport, self._rogue.kind).live()
            else:
                await Pack(config, task, self._clock, transport).live()

        self._start(name, live)

    def _start(self, name: str, main: Callable[[], Any]) -> None:
        self._tell(f"{name} starts")
        self._running[name] = self._loop.start(name, main)

    # --- faults ----------------------------------------------------------------------------------

    def _before_step(self, process: SimulatedProcess) -> None:
        """Strike, if it is time. Called by the loop before every callback."""
        name, loop = process.name, self._loop
        if loop.steps > _MOST_STEPS:
            raise Stuck(f"{_MOST_STEPS} callbacks")
        for fault in self._by_step.pop(loop.steps, ()):
            self._strike(fault)
        if process is loop.outside:
            return
        self._steps[name] += 1
        own = name, self._steps[name]
        if own in self._by_process:
            self._strike(self._by_process.pop(own), process)

    def _strike(self, fault: Fault, process: SimulatedProcess | None = None) -> None:
        self._tell(f"FAULT {fault}")
        match fault:
            case Kill():
                assert process is not None
                if process.name == "evaluation":
                    for evaluation in self._evaluations:
                        evaluation.die()
                else:
                    self._kill(process)
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

    def _kill(self, process: SimulatedProcess) -> None:
        self._end(process)
        self._loop.call_soon(self._killed.set, context=self._network.context)

    def _pause(self, process: SimulatedProcess, seconds: float) -> None:
        loop, network = self._loop, self._network
        loop.pause(process)
        loop.call_later(seconds, loop.resume, process, context=network.context)
        if seconds > _KEEPALIVE_S:  # it answers no pings
            loop.call_later(_KEEPALIVE_S, network.cut, process.name, context=network.context)

    # --- the weather of the network --------------------------------------------------------------

    def delay_s(self, source: str, target: str) -> float:
        """Mostly short, and now and then long."""
        return self._random.random() ** 4 * 0.05

    def reachable(self, source: str, target: str) -> bool:
        """Whether a connection can be made now."""
        now = self._loop.time()
        return all(self._unreachable.get(host, 0.0) <= now for host in (source, target))

    def judge(self, source: str, target: str, method: str, frame: Frame) -> FrameFate:
        """Whether a frame arrives."""
        fault = self._breaks.get(self._frames)
        if source == "server" and frame.kind is FrameKind.MESSAGE and method.endswith("/Attend"):
            committed = messages.decode_to_device(frame.payload).committed
            self._told = max(self._told, committed.round if committed else 0)
        if self._traced:
            size = f" {len(frame.payload)} B" if isinstance(frame.payload, bytes) else ""
            call = method.rpartition("/")[2]
            self._tell(f"frame {self._frames}: {source} -> {target} {call} {frame.kind}{size}")
        self._frames += 1
        if fault is None:
            return FrameFate.ARRIVES
        self._tell(f"FAULT {fault}")
        return {
            "before": FrameFate.BREAKS_BEFORE,
            "after": FrameFate.BREAKS_AFTER,
            "silently": FrameFate.VANISHES,
        }[fault.how]

    # --- telling ---------------------------------------------------------------------------------

    def _tell(self, line: str) -> None:
        if self._traced:
            self.outcome.trace.append(
                f"{self._loop.time():9.3f} s  step {self._loop.steps:6}  {line}"
            )

    def _standing(self) -> str:
        """Where the run stands, for a message."""
        path = self.folder / "ledger.sqlite"
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as ledger:
            rounds = ledger.execute("SELECT count(*) FROM rounds").fetchone()[0]
            return f"{rounds} of {self.programs.scenario.server.rounds} rounds are committed"
        return "there is no ledger"


def _bytes_in(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
