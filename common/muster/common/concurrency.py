"""Tasks that have an owner: whatever one of them raises is raised where somebody waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_beside(main: Coroutine[Any, Any, T], *watchers: Coroutine[Any, Any, None]) -> T:
    """Run `main` to its end beside watchers, which may run as long as it does.

    The first failure of any of them is raised. Whatever still runs then is cancelled, and has
    ended when this returns or raises.
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
