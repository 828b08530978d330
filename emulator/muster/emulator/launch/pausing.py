"""The supervisor's side of the pause watchdog (`pause_watchdog`)."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from muster.common.clock import Clock
from muster.common.environment import settled
from muster.common.errors import LaunchFailed
from muster.emulator.run_folder.limits import LEASE_S, Limited

_KEEPS_A_LEASE = 5


class Pauses:
    """Pauses and limits programs through a watchdog, which is started when it is first needed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchdog: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._asking = set[asyncio.Future[dict[str, Any]]]()

    async def pause(self, name: str, handle: Mapping[str, Any]) -> bool:
        """Pause a program; return whether it was there to be paused."""
        answer = await self._ask({"pause": name, **handle})
        return not (answer["failed"] or answer.get("ended"))

    async def resume(self, name: str) -> None:
        """Let a program go on."""
        await self._ask({"resume": name})

    async def limit(self, name: str, what: Limited, value: float, handle: Mapping[str, Any]) -> str:
        """Limit a program; return why that was impossible, "" if it was done or if the program has
        ended."""
        request = {"limit": name, "what": what, "value": value, **handle}
        return str((await self._ask(request))["failed"])

    async def free(self, name: str, what: Limited) -> None:
        """Take a limit away."""
        await self._ask({"free": name, "what": what})

    async def held_back(self, name: str) -> int:
        """How often a process was stopped by its share of a core while it was running."""
        return int((await self._ask({"held_back": name})).get("held_back", 0))

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and read its answer. The answer is read even if the caller is cancelled,
        because the next one would take it for its own."""
        asking = asyncio.ensure_future(self._exchange(request))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            if self._watchdog is None:
                self._watchdog = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    "muster.emulator.launch.pause_watchdog",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env=settled(os.environ),
                    start_new_session=True,
                )
                self._keeping = asyncio.create_task(self._keep())
            assert self._watchdog.stdin is not None
            assert self._watchdog.stdout is not None
            try:
                self._watchdog.stdin.write(json.dumps(request).encode() + b"\n")
                await self._watchdog.stdin.drain()
                line = await self._watchdog.stdout.readline()
            except OSError as error:
                raise LaunchFailed(f"the pause watchdog is gone: {error}") from None
            if not line:
                raise LaunchFailed("the pause watchdog is gone")
            answer: dict[str, Any] = json.loads(line)
            return answer

    async def _keep(self) -> None:
        """Renew the lease of all pauses."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + LEASE_S / _KEEPS_A_LEASE)
            await self._ask({"keep": True})

    async def close(self) -> None:
        """End the watchdog, which lets everything go on."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await asyncio.gather(*self._asking, return_exceptions=True)
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            await self._watchdog.wait()
            self._watchdog = None
