"""Tasks that have an owner."""

import asyncio

import pytest

from muster.common.concurrency import run_beside, run_to_end


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
