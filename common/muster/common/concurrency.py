"""Running tasks with an owner, so that an error of any task is raised in the code that waits."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


async def run_beside(main: Coroutine[Any, Any, T], *watchers: Coroutine[Any, Any, None]) -> T:
    """Run `main` to its end beside `watchers`, and return its result.

    A watcher may end before `main`; the others are cancelled when `main` ends. The first error of
    any of them cancels the others and is raised. All tasks have ended when this returns or raises.
    """
    running = asyncio.create_task(main)
    tasks: list[asyncio.Task[Any]] = [running, *map(asyncio.create_task, watchers)]
    waiting = set(tasks)
    try:
        while not running.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        return running.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also if an event loop is already running (in a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    ended: Future[T] = Future()

    def other_thread() -> None:
        try:
            ended.set_result(asyncio.run(work))
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=other_thread, name="muster").start()
    return ended.result()
