"""Running tasks with an owner, so that an error of any task is raised in the code that waits."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_SIGNALS_S = 0.5
"""How long the main thread waits before it looks for signals: if another thread of the process gets
one, it does not wake up."""


async def run_beside(main: Coroutine[Any, Any, T], *watchers: Coroutine[Any, Any, None]) -> T:
    """Run `main` to its end beside `watchers`, and return its result.

    A watcher may end before `main`; the others are cancelled when `main` ends. The first error of
    any of them cancels the others and is raised; if several fail at the same time, that of the
    first of them. All tasks have ended when this returns or raises.
    """
    running = asyncio.create_task(main)
    tasks: list[asyncio.Task[Any]] = [running, *map(asyncio.create_task, watchers)]
    waiting = tasks
    try:
        while not running.done():
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                if task.done():
                    task.result()
            waiting = [task for task in waiting if not task.done()]
        return running.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Beside(threading.Thread):
    """A thread that runs a coroutine while the thread that waits for it gets the signals."""

    def __init__(self, work: Coroutine[Any, Any, Any], ended: "Future[Any]") -> None:
        super().__init__(name="muster")
        self._work, self._ended = work, ended
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self._waiting = 0

    def run(self) -> None:
        try:
            self._ended.set_result(asyncio.run(self._work))
        except BaseException as error:
            self._ended.set_exception(error)

    def on_stop(self, stop: Callable[[], object]) -> None:
        with self._lock:
            self._stop = stop
            for _ in range(self._waiting):
                stop()

    def interrupt(self) -> None:
        """Ask the coroutine to end, as soon as it can be asked."""
        with self._lock, suppress(RuntimeError):  # it has ended meanwhile
            if self._stop is None:
                self._waiting += 1
            else:
                self._stop()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also if an event loop is already running (in a notebook). It
    learns by `on_stop` that it is to end, also of Ctrl-C in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    ended = Future[T]()
    beside, started = _Beside(work, ended), False
    while True:
        try:
            if not started:
                started = True
                beside.start()
            wait([ended], timeout=_SIGNALS_S)
            if ended.done():
                return ended.result()
        except KeyboardInterrupt:
            if ended.done():
                raise
            beside.interrupt()


def on_stop(stop: Callable[[], object]) -> None:
    """Let the running event loop call `stop` whenever somebody asks this process to end: by SIGINT
    or SIGTERM or, in a notebook, by Ctrl-C."""
    loop, thread = asyncio.get_running_loop(), threading.current_thread()
    if thread is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
    elif isinstance(thread, _Beside):
        thread.on_stop(partial(loop.call_soon_threadsafe, stop))
