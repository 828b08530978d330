"""The ports of a gateway, one for each device, and its connections to the server."""

import asyncio
import ipaddress
import logging
import socket
from collections import Counter, defaultdict
from typing import Any

from muster.emulator.gateway.device_link import DeviceLink
from muster.emulator.gateway.pump import Pump
from muster.emulator.gateway.rates import DIRECTIONS
from muster.emulator.gateway.relay import RelayedConnection
from muster.emulator.gateway.relay_sockets import fit_buffers

log = logging.getLogger("muster.gateway")

_DIAL_S = 10.0
_BACKLOG = 64
_ACCEPT_AGAIN_S = 0.5


class DevicePorts:
    """Accepts the connections of devices and connects each to the server.

    Attributes:
        upstream: host and port of the server, for new connections.
        opened: number of connections that each device has opened.
    """

    def __init__(self, pump: Pump, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self._pump = pump
        self._loop = pump.loop
        self.opened = Counter[str]()
        self._connections = defaultdict[str, set[RelayedConnection]](set)
        self._listeners: list[socket.socket] = []
        self._dials: set[asyncio.Task[None]] = set()

    def open(self, device: DeviceLink, host: str, port: int) -> int:
        """Listen for a device; return the port.

        Args:
            port: 0 for any free one.

        Raises:
            OSError: the port cannot be opened.
        """
        listener = socket.socket(_family(host), socket.SOCK_STREAM)
        self._listeners.append(listener)
        listener.setblocking(False)
        fit_buffers(listener, device)  # accepted sockets inherit its buffer sizes
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        self._listen_on(listener, device)
        return int(listener.getsockname()[1])

    def connections_of(self, device: DeviceLink) -> list[RelayedConnection]:
        """The open connections of a device."""
        return list(self._connections[device.client])

    def close(self) -> None:
        """Stop to listen and to connect."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for dial in self._dials:
            dial.cancel()

    def _accept(self, listener: socket.socket, device: DeviceLink) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.error("%s: a connection cannot be accepted: %s", device.client, error)
            self._loop.remove_reader(listener)  # else the loop would call this again and again
            self._loop.call_later(_ACCEPT_AGAIN_S, self._listen_on, listener, device)
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opened[device.client] += 1
        number, here = self.opened[device.client], self._connections[device.client]
        connection = RelayedConnection(self._pump, device, number, accepted, here.discard)
        connection.fit_buffers()
        here.add(connection)
        device.struck += device.active_faults.strike_new
        if device.active_faults.offline:
            connection.close()
        elif device.active_faults.blackhole:
            connection.freeze()
        else:
            for each in DIRECTIONS:
                if device.active_faults.cut(each):
                    connection.halves[each].lose()
            dial = self._loop.create_task(self._dial(connection))
            self._dials.add(dial)
            dial.add_done_callback(self._dials.discard)

    def _listen_on(self, listener: socket.socket, device: DeviceLink) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener, device)

    async def _dial(self, connection: RelayedConnection) -> None:
        """Connect to the server; if it does not answer, reset the device's connection."""
        host, port = self.upstream
        upstream = None
        try:
            async with asyncio.timeout(_DIAL_S):
                family, address = await self._resolved(host, port)
                upstream = socket.socket(family, socket.SOCK_STREAM)
                upstream.setblocking(False)
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                fit_buffers(upstream, connection.device)
                await self._loop.sock_connect(upstream, address)
        except (OSError, TimeoutError) as error:
            if upstream is not None:
                upstream.close()
            if not (connection.closed or connection.frozen):
                why = error.strerror if isinstance(error, OSError) and error.strerror else "silent"
                name = connection.device.client
                log.warning("%s: cannot connect to %s:%d: %s", name, host, port, why)
                connection.abort()
        except asyncio.CancelledError:
            if upstream is not None:
                upstream.close()
            raise
        else:
            connection.establish(upstream)

    async def _resolved(self, host: str, port: int) -> tuple[int, Any]:
        try:
            return _family(host), (str(ipaddress.ip_address(host)), port)
        except ValueError:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return found[0][0], found[0][4]


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
