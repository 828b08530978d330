"""An event loop with virtual time, on which several simulated processes run.

Rule 1: a callback belongs to the process in whose context it was scheduled. Within a process,
callbacks run in the order in which they became ready, as asyncio promises. The process that runs
next is drawn from the seed.

Rule 2: time stands still while any process can run. Then it jumps to the next timer.

Rule 3: a killed process never runs again, and its stack is not unwound: no `finally` or `except`
runs.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

EPOCH_S = 1_700_000_000.0
"""UNIX seconds at virtual time 0."""


class Stuck(Exception):
    """No process can ever run again, or too much virtual time has passed."""


class SimulatedProcess:
    """One simulated process.

    Attributes:
        steps: number of callbacks that it has run.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.killed = False
        self.paused = False
        self.steps = 0
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        # The time at which each of its worker threads is free again.
        self.busy_until: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<process {self.name}>"


PROCESS: contextvars.ContextVar[SimulatedProcess] = contextvars.ContextVar("PROCESS")
"""The process that is running."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one history.

    Args:
        random: draws the order of processes and the speed of worker threads.
        before_step: called before every callback with its process, which it may kill.
        most_s: virtual seconds after which a history that has not ended counts as stuck.

    Attributes:
        steps: number of callbacks that have run.
        lost: asyncio's reports of exceptions that were never retrieved.
    """

    def __init__(
        self, random: Random, before_step: Callable[[SimulatedProcess], None], most_s: float
    ) -> None:
        super().__init__()
        self._random = random
        self._before_step = before_step
        self._most_s = most_s
        self._elapsed = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, SimulatedProcess]] = []
        self._numbers = count()
        self._runnable: list[SimulatedProcess] = []
        self.outside = SimulatedProcess("outside")
        self._processes = [self.outside]
        self.steps = 0
        self.lost: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.lost.append(context))
        self.set_task_factory(_owned_task)

    # --- processes -------------------------------------------------------------------------------

    def start(
        self, name: str, main: Callable[[], Any]
    ) -> tuple[SimulatedProcess, "asyncio.Task[Any]"]:
        """Start a process; `main` returns its main coroutine."""
        process, context = SimulatedProcess(name), contextvars.copy_context()
        self._processes.append(process)
        context.run(PROCESS.set, process)
        return process, self.create_task(context.run(main), context=context)

    def kill(self, process: SimulatedProcess) -> None:
        """Kill a process; if it has already ended, only remove it."""
        process.killed = process.killed or any(not task.done() for task in process.tasks[:1])
        process.alive = False
        process.ready.clear()
        if process in self._runnable:
            self._runnable.remove(process)

    def pause(self, process: SimulatedProcess) -> None:
        process.paused = True
        if process in self._runnable:
            self._runnable.remove(process)

    def resume(self, process: SimulatedProcess) -> None:
        process.paused = False
        if process.alive and process.ready:
            self._runnable.append(process)

    def _make_ready(self, handle: asyncio.Handle, process: SimulatedProcess) -> None:
        if not process.alive:
            return
        process.ready.append(handle)
        if len(process.ready) == 1 and not process.paused:
            self._runnable.append(process)

    # --- the interface of an asyncio loop --------------------------------------------------------

    def time(self) -> float:
        return self._elapsed

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._make_ready(handle, context.get(PROCESS, self.outside))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = context.get(PROCESS, self.outside)
        heapq.heappush(self._timers, (when, next(self._numbers), handle, process))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Any,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._elapsed + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when its time comes."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Any, *args: Any
    ) -> Any:
        """Run jobs of a worker thread one after the other, at instants drawn from the seed."""
        process = PROCESS.get(self.outside)
        done = self.create_future()
        key = id(executor)
        begins = max(self._elapsed, process.busy_until.get(key, 0.0)) + self._took_s()
        ends = begins + self._took_s()
        process.busy_until[key] = ends
        result: list[Any] = []

        def run() -> None:
            try:
                result[:] = [func(*args), None]
            except BaseException as error:
                result[:] = [None, error]

        def deliver() -> None:
            if done.cancelled():
                return
            value, error = result
            if error is None:
                done.set_result(value)
            else:
                done.set_exception(error)

        self.call_at(begins, run)
        self.call_at(ends, deliver)
        return done

    def _took_s(self) -> float:
        return self._random.random() * 0.01

    def _run_once(self) -> None:
        while not self._runnable:
            self._jump()
        runnable = self._runnable
        place = self._random.randrange(len(runnable)) if len(runnable) > 1 else 0
        process = runnable[place]
        self.steps += 1
        process.steps += 1
        self._before_step(process)
        if not process.alive or process.paused:
            return
        handle = process.ready.popleft()
        if not process.ready:
            self._runnable.remove(process)
        if not handle.cancelled():
            handle._run()

    def _jump(self) -> None:
        """Advance time to the next timer, and make the timers that are due ready."""
        if self._stopping:  # type: ignore[attr-defined]
            self._runnable.append(self.outside)
            self.outside.ready.append(asyncio.Handle(lambda: None, (), self))
            return
        if not self._timers:
            raise Stuck("no process waits for a timer, and none can run")
        when = max(self._elapsed, self._timers[0][0])
        if when > self._most_s:
            raise Stuck(f"not over after {self._most_s:g} virtual seconds")
        self._elapsed = when
        waiting = []
        while self._timers and self._timers[0][0] <= when:
            timer = heapq.heappop(self._timers)
            _, _, handle, process = timer
            if handle.cancelled() or not process.alive:
                continue
            if process.paused:
                waiting.append(timer)
            else:
                self._make_ready(handle, process)
        for timer in waiting:  # a timer of a paused process fires when the process resumes
            heapq.heappush(self._timers, (when + 0.1, *timer[1:]))

    def unclaimed(self) -> list[str]:
        """Exceptions that were never retrieved, in processes that were not killed."""
        found = [f"{lost.get('message')}: {lost.get('exception')!r}" for lost in self.lost]
        honest = (process for process in self._processes if not process.killed)
        tasks = (task for process in honest for task in process.tasks if _is_unclaimed(task))
        return found + [f"{_name(task)}: {task.exception()!r}" for task in tasks]

    def abandon(self) -> None:
        """Unwind killed processes, after a history and after its files were removed, so that they
        can do no harm."""
        self._timers.clear()
        self._runnable.clear()
        for process in self._processes:
            process.alive = False
            for task in process.tasks:
                _quiet(task)
            process.tasks.clear()
            process.ready.clear()
        self.close()


def _is_unclaimed(task: Any) -> bool:
    """Whether asyncio would log that the task's exception was never retrieved."""
    return task.done() and not task.cancelled() and bool(task._log_traceback)


def _name(task: Any) -> str:
    return str(task.get_coro().__qualname__)


def _quiet(task: "asyncio.Task[Any]") -> None:
    """End a task without any log message."""
    if task.done():
        if not task.cancelled():
            task.exception()
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with suppress(BaseException):
        task.get_coro().close()


def _owned_task(
    loop: asyncio.AbstractEventLoop, coro: Any, context: contextvars.Context | None = None
) -> "asyncio.Task[Any]":
    task = asyncio.Task(coro, loop=loop, context=context)
    owner = PROCESS.get(None) if context is None else context.get(PROCESS)
    if owner is not None:
        owner.tasks.append(task)
    return task


class VirtualClock:
    """A process's clock on a virtual loop.

    Attributes:
        ahead_s: seconds by which UNIX time is ahead of the correct time.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.ahead_s = 0.0

    def now(self) -> float:
        return EPOCH_S + self._loop.time() + self.ahead_s

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep_until(self, instant: float) -> None:
        await asyncio.sleep(max(0.0, instant - self._loop.time()))

    def pause(self, seconds: float) -> None:
        raise NotImplementedError("simulated processes sleep only in their event loop")
