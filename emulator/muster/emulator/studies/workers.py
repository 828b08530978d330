"""Several runs at once, each in a process of its own; see `__main__` for what a worker does.

In lockstep a run's result hangs on no clock, so it is the same however many go on beside it.
"""

import asyncio
import json
import os
import signal
import tomllib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from muster.common.clock import Clock
from muster.common.processes import PARENT, child_command
from muster.emulator.launch.backend import BackendName
from muster.emulator.studies.plan import PlannedRun

Ended = Callable[[PlannedRun, str, str, float], None]
"""Called with a run that ended, its status, why it has no result, and the seconds it took."""


class Workers:
    """Runs what is planned, `at_once` at a time, in order.

    Args:
        folder: of the study.
    """

    def __init__(self, folder: Path, backend: BackendName, at_once: int, clock: Clock) -> None:
        self._folder, self._backend = folder, backend
        self._at_once, self._clock = at_once, clock
        self._processes: set[asyncio.subprocess.Process] = set()
        self._stopping = False

    def run(self, runs: Sequence[PlannedRun], ended: Ended) -> bool:
        """Run all of `runs`; return whether they were stopped."""
        asyncio.run(self._run(deque(runs), ended))
        return self._stopping

    async def _run(self, waiting: deque[PlannedRun], ended: Ended) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(waiting))):
                group.create_task(self._work(waiting, ended))

    def _stop(self) -> None:
        """Each of them ends its run in order; asked twice, at once."""
        self._stopping = True
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)

    async def _work(self, waiting: deque[PlannedRun], ended: Ended) -> None:
        """One worker after another, should one die, until nothing is left to run."""
        while waiting and not self._stopping:
            process = await _start()
            self._processes.add(process)
            try:
                await self._order(process, waiting, ended)
            finally:
                self._processes.discard(process)
                assert process.stdin is not None
                process.stdin.close()
                await process.wait()

    async def _order(
        self, process: asyncio.subprocess.Process, waiting: deque[PlannedRun], ended: Ended
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        while waiting and not self._stopping:
            planned = waiting.popleft()
            began = self._clock.monotonic()
            process.stdin.write(self._line(planned))
            answer = await process.stdout.readline()
            took_s = self._clock.monotonic() - began
            if not answer:
                status = await process.wait()
                why = "stopped" if self._stopping else f"its worker ended with status {status}"
                ended(planned, "stopped" if self._stopping else "failed", why, took_s)
                return
            told = json.loads(answer)
            if told["status"] == "stopped" and not self._stopping:
                self._stop()  # one was: all are
            ended(planned, told["status"], told["problem"], took_s)

    def _line(self, planned: PlannedRun) -> bytes:
        order = {
            "folder": str(self._folder / planned.folder),
            "scenario": tomllib.loads(planned.run.scenario.to_toml()),
            "backend": self._backend,
        }
        return json.dumps(order).encode() + b"\n"


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *child_command("muster.emulator.studies"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # A Ctrl-C at the terminal is ours to answer, once.
        start_new_session=True,
        env={**os.environ, PARENT: str(os.getpid())},
    )
