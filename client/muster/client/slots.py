"""Channel slots, asked for at the gateway of the group: JSON lines over one connection.

A gateway remembers what it decided, so whatever breaks, asking again gives the same answer.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from muster.client.config import SlotsPort
from muster.common.clock import Clock
from muster.common.errors import RemoteProtocolError
from muster.common.exchange import Call

log = logging.getLogger("muster.client")

_AGAIN_S = 0.2
"""Between tries to reach the gateway."""


class SlotClient:
    """A device's word with whoever grants slots.

    Args:
        token: the fleet's, hexadecimal.
    """

    def __init__(self, port: SlotsPort, token: str, clock: Clock) -> None:
        self._port = port
        self._token = token
        self._clock = clock
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def contend(self, call: Call, active: bool) -> bool:
        """Say whether a device wants to transfer in a round; whether it may.

        The answer comes when all devices of the group that were called have spoken.
        """
        told = await self._ask(
            do="contend",
            client=call.key.client,
            round=call.key.round,
            active=active,
            of=call.called_in_group,
        )
        return bool(told["granted"])

    @asynccontextmanager
    async def turn(self, call: Call) -> AsyncIterator[float]:
        """Hold a slot, where devices take turns; the wall seconds it was waited for."""
        if not self._port.queue:
            yield 0.0
            return
        began, whose = self._clock.monotonic(), {"client": call.key.client, "round": call.key.round}
        await self._ask(do="take", **whose)
        try:
            yield self._clock.monotonic() - began
        except asyncio.CancelledError:
            self.close()  # a connection that ends gives back what it held
            raise
        finally:
            if self._streams is not None:
                await self._ask(do="give", **whose)

    def close(self) -> None:
        """End the connection: what was held is given back."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, **request: Any) -> dict[str, Any]:
        while True:
            try:
                if self._streams is None:
                    await self._connect()
                return await self._exchange(request)
            except OSError as error:
                self.close()
                log.info("no word from whoever grants slots (%s); again", error)
                await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)
            except asyncio.CancelledError:
                self.close()  # an answer may be under way that nobody will read
                raise

    async def _connect(self) -> None:
        host, _, port = self._port.address.rpartition(":")
        self._streams = await asyncio.open_connection(host, int(port))
        await self._exchange({"token": self._token})

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the gateway ended the connection")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise RemoteProtocolError(f"the gateway refused {request.get('do')}: {told['error']}")
        return told
