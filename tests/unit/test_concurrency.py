"""Tasks that have an owner."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from muster.common.concurrency import on_stop, run_beside, run_to_end


async def forever() -> None:
    await asyncio.Event().wait()


async def raising(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def result() -> str:
    await asyncio.sleep(0)
    return "done"


async def nothing() -> None:
    return


async def test_the_result_comes_though_watchers_never_end() -> None:
    assert await run_beside(result(), forever(), forever()) == "done"


async def test_a_watcher_may_end_first() -> None:
    assert await run_beside(result(), nothing()) == "done"


async def test_the_failure_of_a_watcher_is_raised_and_ends_the_rest() -> None:
    ended = []

    async def main() -> None:
        try:
            await forever()
        finally:
            ended.append("main")

    with pytest.raises(ValueError, match="seen"):
        await run_beside(main(), raising(ValueError("seen")))
    assert ended == ["main"]


async def test_of_errors_at_the_same_time_the_first_task_has_its_own_raised() -> None:
    watchers = (raising(ValueError(str(number))) for number in range(20))
    with pytest.raises(ValueError, match=r"^0$"):
        await run_beside(forever(), *watchers)


async def test_the_failure_of_the_main_part_is_raised() -> None:
    with pytest.raises(ValueError, match="seen"):
        await run_beside(raising(ValueError("seen")), forever())


async def test_a_cancelled_owner_leaves_nothing_running() -> None:
    began, ended = asyncio.Event(), []

    async def watcher() -> None:
        began.set()
        try:
            await forever()
        finally:
            ended.append("watcher")

    owner = asyncio.create_task(run_beside(forever(), watcher()))
    await began.wait()
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert ended == ["watcher"]


def test_a_coroutine_runs_to_its_end_without_a_loop() -> None:
    assert run_to_end(result()) == "done"
    with pytest.raises(ValueError, match="why"):
        run_to_end(raising(ValueError("why")))


async def test_a_coroutine_runs_to_its_end_where_a_loop_is_running_as_in_a_notebook() -> None:
    assert run_to_end(result()) == "done"
    with pytest.raises(ValueError, match="why"):
        run_to_end(raising(ValueError("why")))


def in_a_loop_that_runs(work: Callable[[], object]) -> None:
    """Call `work` inside a running event loop, which leaves Ctrl-C alone, as that of a notebook."""

    async def main() -> None:
        work()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def to_process() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def to_thread() -> None:
    """Send the signal to this thread, as the kernel may do with a signal to the process, while the
    main thread waits."""
    stat = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat")
    asleep = 0
    while asleep < 100:  # each time it could go on, and has nothing to do
        asleep = asleep + 1 if stat.read_text().rpartition(")")[2].split()[0] == "S" else 0
        os.sched_yield()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


async def until_asked(
    handled: threading.Event | None = None, interrupt: Callable[[], None] = to_process
) -> str:
    """Send the signal of Ctrl-C, and wait to be asked to stop.

    Args:
        handled: set when the signal has been handled; it is waited for before `on_stop`.
    """
    stop = asyncio.Event()
    if handled is not None:
        interrupt()
        handled.wait()
    on_stop(stop.set)
    if handled is None:
        interrupt()
    await stop.wait()
    return "orderly"


@pytest.mark.parametrize("interrupt", [to_process, to_thread])
@pytest.mark.parametrize("early", [False, True], ids=["while it waits", "before it can wait"])
def test_ctrl_c_where_a_loop_is_running_asks_the_coroutine_to_stop(
    early: bool, interrupt: Callable[[], None]
) -> None:
    handled, ended = threading.Event(), []

    def handle(number: int, frame: FrameType | None) -> None:
        handled.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        in_a_loop_that_runs(
            lambda: ended.append(run_to_end(until_asked(handled if early else None, interrupt)))
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == ["orderly"]


def test_without_a_loop_the_signal_itself_asks_it_to_stop() -> None:
    assert run_to_end(until_asked()) == "orderly"
