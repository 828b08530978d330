"""Controls a gateway over its control port."""

import asyncio
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Self

from muster.common.clock import Clock
from muster.common.credentials import Credentials
from muster.common.errors import ConfigError, Interrupted, Unauthenticated, Unreachable
from muster.common.rates.recording import Direction
from muster.emulator.gateway.config import Ports
from muster.emulator.gateway.faults import FaultName
from muster.emulator.links.shape import SharedState
from muster.wire.connections.streams import open_stream

_LINE_BYTES = 64 * 1024 * 1024
PATIENCE_S = 10.0

_PINGS_A_LEASE = 4
_AGAIN_S = 0.2
"""Seconds between tries to connect to a gateway that has too many connections."""


class Controller:
    """A connection to a gateway's control port. It sends pings, so that the gateway keeps its
    faults and settings while the connection is open.

        async with Controller(ports, credentials, clock) as controller:
            await controller.fault(["phones-0001"], "cut", direction="up")

    Args:
        credentials: those of the supervisor.
        gateway: the name under which the gateway is known; its certificate must have it.
        patience_s: seconds after which the connection to a gateway that does not reply is ended.

    A request goes on if its caller is cancelled, so that the connection stays in order.

    Every method raises:
        ConfigError: the gateway refuses the request, and says why. Nothing has changed.
        Interrupted: the gateway is gone, or does not reply. The connection has ended.
    """

    def __init__(
        self,
        ports: Ports,
        credentials: Credentials,
        clock: Clock,
        patience_s: float = PATIENCE_S,
        gateway: str = "",
    ) -> None:
        self._gateway = gateway
        self._patience_s = patience_s
        self._ports, self._credentials, self._clock = ports, credentials, clock
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()
        self._pings: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[Any]] = set()

    @classmethod
    async def connect(cls, ports: Ports, credentials: Credentials, clock: Clock) -> Self:
        """Return a connected controller, which the caller must `close`.

        Raises:
            Unreachable: no gateway listens on the port.
            Unauthenticated: these are not the supervisor's credentials.
        """
        controller = cls(ports, credentials, clock)
        await controller.open()
        return controller

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection. Faults and settings stay until the gateway's lease ends."""
        if self._pings is not None:
            self._pings.cancel()
            await asyncio.wait([self._pings])
            self._pings = None
        self._hang_up()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def stats(self, clients: Collection[str] | None = None) -> dict[str, Any]:
        """Return the bytes that were and that could have been delivered since the gateway began.

        Args:
            clients: None: all devices.

        Returns:
            {"at": the gateway's monotonic seconds, "began": when it began,
            "shared": {"up" and "down": {"capacity": bytes, or None without a limit}},
            "devices": {client: {"up" and "down": {"bytes": delivered bytes, "capacity": bytes that
            its own rate allowed, "delays": {"pieces", "least_s", "quartile_s"} of what was sent
            since the link changed, "stalls": number of stalls for lost packets, "packets":
            number of packets that could be lost}, "connections": number of open connections,
            "struck": how often a fault has struck a connection}}}
        """
        reply: dict[str, Any] = await self._ask(do="stats", clients=_listed(clients))
        return reply

    async def set(
        self, shape: Mapping[str, Any] | None, clients: Collection[str] | None = None
    ) -> None:
        """Change the links of devices.

        Args:
            shape: the fields of Shape to change; None: restore the shapes with which the gateway
                was started.
            clients: None: all devices.
        """
        given = None if shape is None else dict(shape)
        await self._ask(do="set", shape=given, clients=_listed(clients))

    async def set_shared(self, state: SharedState) -> None:
        """Change the shared link of the group."""
        await self._ask(do="set_shared", **state.model_dump())

    async def fault(
        self,
        clients: Collection[str] | None,
        fault: FaultName,
        *,
        direction: Direction | None = None,
        nbytes: int | None = None,
        for_s: float | None = None,
        **more: float | bool | None,
    ) -> None:
        """Begin a fault; `muster.emulator.gateway.faults` describes all faults.

        Args:
            clients: None: all devices.
            nbytes: for the faults `limit` and `quota`.
            for_s: wall seconds after which the fault heals by itself.
            more: further fields of the fault.
        """
        rest = {"direction": direction, "bytes": nbytes, "for_s": for_s, **more}
        await self._ask(do="fault", fault=fault, clients=_listed(clients), **rest)

    async def heal(
        self,
        clients: Collection[str] | None = None,
        fault: FaultName | None = None,
        direction: Direction | None = None,
    ) -> None:
        """Heal a fault, or all faults (None), in one direction or both (None). Links that were set
        stay as they are."""
        await self._ask(do="heal", clients=_listed(clients), fault=fault, direction=direction)

    async def upstream(self, address: str) -> None:
        """Make the gateway connect to the server at `address`, host:port, from now on."""
        await self._ask(do="upstream", address=address)

    async def ping(self) -> float:
        """Renew the gateway's lease, and return its length in seconds."""
        reply = await self._ask(do="ping")
        return float(reply["lease_s"])

    async def open(self) -> None:
        """Connect. A gateway that says that there are too many connections is asked again."""
        limit = self._clock.monotonic() + self._patience_s
        while (refusal := await self._connect()) is not None:
            if not refusal.get("again"):
                raise Unauthenticated(refusal["error"])
            if self._clock.monotonic() >= limit:
                raise Unreachable(refusal["error"])
            await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)

    async def _connect(self) -> dict[str, Any] | None:
        """Connect once; return what the gateway says if it refuses the connection."""
        host, port = self._ports.controllers
        try:
            async with asyncio.timeout(self._patience_s):
                streams = await open_stream(
                    host, port, self._credentials, self._gateway, _LINE_BYTES
                )
        except TimeoutError:  # in the handshake of TLS: the gateway is stopped, for example
            raise self._silent() from None
        except OSError as error:
            raise Unreachable(f"no gateway listens at {host}:{port}: {error}") from None
        try:
            # Only the supervisor may send a ping.
            hello = {"token": self._credentials.shown.hex()}
            for request in (hello, {"do": "ping"}):
                reply: dict[str, Any] = await self._exchange(
                    streams, json.dumps(request).encode() + b"\n"
                )
                if "error" in reply:
                    streams[1].close()
                    return reply
        except BaseException:
            streams[1].close()
            raise
        self._streams = streams
        self._pings = asyncio.create_task(self._ping_on(reply["ok"]["lease_s"] / _PINGS_A_LEASE))
        return None

    async def _ping_on(self, every_s: float) -> None:
        with suppress(Interrupted):  # the next request raises it again
            while True:
                await self._clock.sleep_until(self._clock.monotonic() + every_s)
                await self.ping()

    async def _ask(self, **request: Any) -> Any:
        asking = asyncio.create_task(self._in_turn(json.dumps(request).encode() + b"\n"))
        self._asking.add(asking)
        asking.add_done_callback(self._answered)
        reply = await asyncio.shield(asking)
        if "error" in reply:
            raise ConfigError(reply["error"])
        return reply["ok"]

    def _answered(self, asking: asyncio.Task[Any]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # which nobody else may look at, if the caller was cancelled

    async def _in_turn(self, line: bytes) -> Any:
        async with self._turn:
            if self._streams is None:
                raise Interrupted(f"there is no connection to {self._where} any more")
            try:
                return await self._exchange(self._streams, line)
            except BaseException:
                self._hang_up()  # else an unread reply would be taken for the reply to the next
                raise

    async def _exchange(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], line: bytes
    ) -> Any:
        reader, writer = streams
        try:
            async with asyncio.timeout(self._patience_s):
                writer.write(line)
                await writer.drain()
                reply = await reader.readline()
        except TimeoutError:
            raise self._silent() from None
        except OSError as error:
            raise Interrupted(f"{self._where} is gone: {error}") from None
        if not reply.endswith(b"\n"):
            raise Interrupted(f"{self._where} ended the connection")
        return json.loads(reply)

    def _silent(self) -> Interrupted:
        return Interrupted(f"{self._where} did not reply for {self._patience_s:g} s")

    @property
    def _where(self) -> str:
        return "the gateway at {}:{}".format(*self._ports.controllers)

    def _hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()  # which does not wait for a gateway that hangs
            self._streams = None


def _listed(clients: Collection[str] | None) -> list[str] | None:
    return None if clients is None else list(clients)
