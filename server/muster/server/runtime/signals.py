"""Signals that wake the main loop: something changed, the run is to stop, or the run failed."""

import asyncio

from muster.common.clock import Clock


class RunSignals:
    """The signals of one run, from anywhere on the event loop to its main loop.

    Attributes:
        stop_request: the status and detail of the first request to end the run; None: no request.
    """

    def __init__(self, clock: Clock) -> None:
        self.stop_request: tuple[str, str] | None = None
        self._clock = clock
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self, status: str, detail: str) -> None:
        """Ask the run to end; the first request decides how."""
        self.stop_request = self.stop_request or (status, detail)
        self._stopping.set()
        self.notify()

    async def stopping(self) -> None:
        """Wait until the run is to stop."""
        await self._stopping.wait()

    def fail(self, error: Exception) -> None:
        """End the run with an error from outside its rounds, for example from a device's call."""
        if not self._failure.done():
            self._failure.set_exception(error)

    async def watch_for_failure(self) -> None:
        """Raise the error of `fail` when there is one."""
        await asyncio.shield(self._failure)

    def notify(self) -> None:
        """Report that something changed for which the main loop may wait."""
        self._changed.set()

    def clear(self) -> None:
        """Forget the changes so far."""
        self._changed.clear()

    async def wait(self) -> None:
        """Wait until something changes."""
        await self._changed.wait()

    async def wait_until(self, instant: float, clock: Clock | None = None) -> bool:
        """Wait until something changes or `instant` is reached. Return whether something changed.

        Args:
            clock: whose monotonic seconds `instant` is in; None: those of the run's clock.
        """
        changed = asyncio.ensure_future(self._changed.wait())
        timer = asyncio.ensure_future((clock or self._clock).sleep_until(instant))
        try:
            await asyncio.wait({changed, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            timer.cancel()
        return self._changed.is_set()
