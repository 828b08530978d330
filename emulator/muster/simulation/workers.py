"""Runs several scenarios at once, each in a worker process; `worker_program` is its program.

In lockstep, the result of a run depends on no clock, so it is the same however many runs go on at
the same time.
"""

import asyncio
import json
import os
import signal
import tomllib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

from muster.common.clock import Clock
from muster.common.errors import ConfigError
from muster.common.processes import child_command, child_environment
from muster.emulator.comparison.run_set import Planned
from muster.emulator.launch.backend import BackendName
from muster.emulator.runs import running
from muster.emulator.scenario.scenario import Scenario

IN_MEMORY: Literal["memory"] = "memory"
"""In place of a backend: workers run whole fleets inside their own process, without sockets."""

WorkerBackend = BackendName | Literal["memory"]
"""Where the runs of a worker take place."""

Ended = Callable[[Planned, str, str, float], None]
"""Called with a run that ended, its status, the reason if it has no result, and its seconds."""


StartWorker = Callable[[], Awaitable[asyncio.subprocess.Process]]
"""Starts a worker: it reads orders from its standard input and answers each with a line."""


async def start_worker() -> asyncio.subprocess.Process:
    """Start a worker that runs `worker_program`."""
    return await asyncio.create_subprocess_exec(
        *child_command("muster.simulation.worker_program"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C at the terminal must reach only this process, which passes it on once.
        start_new_session=True,
        env=child_environment(),
    )


def require_jobs(jobs: int) -> None:
    """Check that the machine has as many cores as jobs.

    Raises:
        ConfigError: it has fewer.
    """
    cores = len(os.sched_getaffinity(0))
    if not 1 <= jobs <= cores:
        raise ConfigError(f"--jobs: expected 1 to {cores}, the cores of this machine; found {jobs}")


def require(scenario: Scenario, backend: WorkerBackend) -> None:
    """Check that a worker can run a scenario, before anything is made or started.

    Raises:
        ConfigError: it cannot.
    """
    if backend == IN_MEMORY:
        from muster.simulation.whole_run import require_simulated  # imports torch

        require_simulated(scenario)
    else:
        running.require(scenario, backend)


class Workers:
    """Runs planned runs in order, `at_once` at a time.

    Args:
        folder: the folder of the study or league.
        backend: the backend of the runs, or `IN_MEMORY`.
        start: starts each worker.
    """

    def __init__(
        self,
        folder: Path,
        backend: WorkerBackend,
        at_once: int,
        clock: Clock,
        start: StartWorker = start_worker,
    ) -> None:
        self._folder, self._backend, self._start = folder, backend, start
        self._at_once, self._clock = at_once, clock
        self._processes: set[asyncio.subprocess.Process] = set()
        self._stopping = False

    def run(self, runs: Sequence[Planned], ended: Ended) -> bool:
        """Run all of `runs`; return whether the user stopped them."""
        asyncio.run(self._run(deque(runs), ended))
        return self._stopping

    async def _run(self, waiting: deque[Planned], ended: Ended) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(waiting))):
                group.create_task(self._work(waiting, ended))

    def _stop(self) -> None:
        """Ask each worker to stop its run in an orderly way; a second request stops it at once."""
        self._stopping = True
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)

    async def _work(self, waiting: deque[Planned], ended: Ended) -> None:
        """Give runs to a worker until none is left; if the worker dies, start another."""
        while waiting and not self._stopping:
            process = await self._start()
            self._processes.add(process)
            try:
                await self._order(process, waiting, ended)
            finally:
                self._processes.discard(process)
                assert process.stdin is not None
                process.stdin.close()
                await process.wait()

    async def _order(
        self, process: asyncio.subprocess.Process, waiting: deque[Planned], ended: Ended
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
            outcome = json.loads(answer)
            if outcome["status"] == "stopped" and not self._stopping:
                self._stop()  # if one run is stopped, stop all
            ended(planned, outcome["status"], outcome["problem"], took_s)

    def _line(self, planned: Planned) -> bytes:
        order = {
            "folder": str(self._folder / planned.folder),
            "scenario": tomllib.loads(planned.scenario.to_toml()),
            "backend": self._backend,
        }
        return json.dumps(order).encode() + b"\n"
