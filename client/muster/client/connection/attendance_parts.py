"""The tasks that run while a pack attends: waits for the first that ends, and ends the others."""

import asyncio
from collections.abc import Sequence


def ended_in_order(part: "asyncio.Task[None]") -> bool:
    """Whether a part has ended without an error, and was not cancelled."""
    return part.done() and not part.cancelled() and part.exception() is None


async def first_error(parts: Sequence["asyncio.Task[None]"]) -> BaseException | None:
    """Wait until a part ends, and return its error if it failed.

    The error is not raised here, because that would make a reference cycle: the error's traceback
    would have a frame that refers to the tasks, and each task refers to its own error. The cycle
    would keep the stream and a socket at both ends alive until garbage is collected, and devices
    rarely collect garbage.
    """
    done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    return next((error for part in done if (error := part.exception()) is not None), None)


async def end_all(parts: "list[asyncio.Task[None]]") -> None:
    """Cancel the parts that still run, wait until they have ended, and empty the list."""
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)
    parts.clear()
