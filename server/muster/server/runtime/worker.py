"""The worker thread: does arithmetic on large vectors, and writes their files and the ledger."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs calls one after the other in one thread, or directly on the event loop.

    Args:
        inline: `run` makes calls on the event loop. With small models this takes less time than
            handing them over to the thread.

    Attributes:
        executor: the thread.
    """

    def __init__(self, inline: bool) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="fold")
        self._inline = inline

    def close(self) -> None:
        """Wait until the thread has done its calls, and end it."""
        self.executor.shutdown()

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """Call `call` and wait for its result."""
        if self._inline:
            return call(*args)
        return await self.run_in_thread(call, *args)

    async def run_in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """Call `call` in the thread even if `inline`, for calls that take long with any model."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, call, *args)
