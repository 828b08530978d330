"""The worker thread: arithmetic on large vectors, their files, and the ledger's transactions."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs calls one after the other in one thread, or at once on the event loop.

    Args:
        inline: run calls of `run` on the event loop; with small models they take less time than
            the way to the thread and back.

    Attributes:
        executor: the thread.
    """

    def __init__(self, inline: bool) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="fold")
        self._inline = inline

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """Call and wait for the result."""
        if self._inline:
            return call(*args)
        return await self.run_in_thread(call, *args)

    async def run_in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """Call in the thread, however small the model: the call itself takes long."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, call, *args)
