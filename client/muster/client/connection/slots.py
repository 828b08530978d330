"""A client for the channel slots that the gateway of a group grants: JSON lines over a connection.

A gateway remembers its decisions, so asking again after a failure gives the same answer.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol

import orjson

from muster.common.clock import Clock
from muster.common.config import Section
from muster.common.credentials import CredentialsSource
from muster.common.errors import RemoteProtocolError, Unauthenticated
from muster.common.exchange import Call
from muster.wire.connections.streams import open_stream

log = logging.getLogger("muster.client")

_DECIDED = {"token": "ok", "contend": "granted", "take": "taken", "give": "given"}
"""The key that a reply to each request has."""

_AGAIN_S = 0.2
"""Seconds between tries to reach the gateway."""


class SlotsPort(Section):
    """The port at which the gateway of a group grants channel slots."""

    address: str
    """host:port."""

    gateway: str
    """The name under which the gateway is known."""

    queue: bool
    """Whether devices wait for a slot (overflow "queue") instead of being denied one."""


class Slots(Protocol):
    """Grants the channel slots of a group to the devices of a pack."""

    async def contend(self, call: Call, active: bool) -> bool:
        """Tell whether a device wants to transfer in a round; return whether it may."""
        ...

    def turn(self, call: Call) -> AbstractAsyncContextManager[float]:
        """Hold a slot if devices take turns; gives the wall seconds that it was waited for."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class SlotClient:
    """A device's connection to the gateway that grants slots.

    Args:
        source: the credentials of the device's process.
    """

    def __init__(self, port: SlotsPort, source: CredentialsSource, clock: Clock) -> None:
        self._port = port
        self._source = source
        self._clock = clock
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def contend(self, call: Call, active: bool) -> bool:
        """Tell the gateway whether a device wants to transfer in a round; return whether it may.

        The answer comes when all called devices of the group have asked.
        """
        reply = await self._ask(
            do="contend",
            client=call.key.client,
            round=call.key.round,
            active=active,
            of=call.called_in_group,
        )
        return bool(reply["granted"])

    @asynccontextmanager
    async def turn(self, call: Call) -> AsyncIterator[float]:
        """Hold a slot if devices take turns; gives the wall seconds that it was waited for."""
        if not self._port.queue:
            yield 0.0
            return
        began, whose = self._clock.monotonic(), {"client": call.key.client, "round": call.key.round}
        await self._ask(do="take", **whose)
        try:
            yield self._clock.monotonic() - began
        except asyncio.CancelledError:
            self.close()  # when the connection ends, the gateway takes its slot back
            raise
        finally:
            if self._streams is not None:
                await self._ask(do="give", **whose)

    def close(self) -> None:
        """Close the connection; the gateway takes its slot back."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, **request: Any) -> dict[str, Any]:
        while True:
            try:
                if self._streams is None:
                    await self._connect()
                return await self._exchange(request)
            except (OSError, Unauthenticated) as error:
                self.close()
                log.info("the gateway that grants slots does not answer (%s); trying again", error)
                await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)
            except asyncio.CancelledError:
                self.close()  # the next request must not read the answer to this one
                raise

    async def _connect(self) -> None:
        host, _, port = self._port.address.rpartition(":")
        credentials = self._source.current()
        self._streams = await open_stream(host, int(port), credentials, self._port.gateway)
        await self._exchange({"token": credentials.shown.hex()})

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        try:
            line = await reader.readline()
        except ValueError:  # it is longer than the reader's limit
            raise RemoteProtocolError("the gateway sent a line that is too long") from None
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the gateway ended the connection")
        return decode_reply(line, request.get("do", "token"))


def decode_reply(line: bytes, asked: str) -> dict[str, Any]:
    """Decode the gateway's reply to a request.

    Args:
        asked: what the request does, or "token" for the first line of a connection.

    Raises:
        ConnectionRefusedError: the gateway refuses the request for now.
        RemoteProtocolError: the gateway refuses the request, or this is no reply to it.
    """
    with suppress(orjson.JSONDecodeError):
        reply = orjson.loads(line)
        if isinstance(reply, dict) and "error" in reply:
            if reply.get("again"):
                raise ConnectionRefusedError(str(reply["error"]))
            raise RemoteProtocolError(f"the gateway refused {asked}: {reply['error']}")
        if isinstance(reply, dict) and _DECIDED[asked] in reply:
            return reply
    raise RemoteProtocolError(
        f"expected {_DECIDED[asked]!r} in the gateway's reply to {asked}, found {line!r:.100}"
    )
