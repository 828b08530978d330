"""The ports of a gateway, one for each device, and its connections to the server.

Anybody who can reach a port can connect to it, because only the server recognises devices. A link
therefore has a limited number of connections. Beyond it, a new connection takes the place of the
oldest over which the device has sent nothing, or which a fault has frozen; if there is none, the
new one is reset. A connection over which the device sends nothing at all is reset in time.
"""

import asyncio
import ipaddress
import logging
import socket
from collections import Counter, defaultdict
from typing import Any

from muster.common.clock import Clock
from muster.common.rates.recording import DIRECTIONS
from muster.common.sparse_log import SparseLog
from muster.emulator.gateway.device_link import DeviceLink
from muster.emulator.gateway.pump import Pump
from muster.emulator.gateway.relay import RelayedConnection
from muster.emulator.gateway.relay_sockets import fit_buffers, reset
from muster.wire.connections.ports import keep_alive

log = logging.getLogger("muster.gateway")

_DIAL_S = 10.0
_BACKLOG = 64
_ACCEPT_AGAIN_S = 0.5

CONNECTIONS = 16
"""The most connections of a device's link. A device has two, and others while it connects again."""

_FEWEST = 4
_OTHER_FILES = 512
"""Files of a gateway for other things than its devices: its control port, for example."""

SILENT_S = 10.0
"""Seconds in which a device must send something over a new connection."""


def connections_of_a_link(devices: int, files: int) -> int:
    """The most connections of a link, so that all links have room in the open files of a process.

    Args:
        devices: number of links.
        files: most open files. A link has a port, and two files for each connection.
    """
    room = (files - _OTHER_FILES - devices) // (2 * devices)
    return min(CONNECTIONS, max(_FEWEST, room))


class DevicePorts:
    """Accepts the connections of devices and connects each to the server.

    Attributes:
        upstream: host and port of the server, for new connections.
        opened: number of connections that each device has opened.

    Args:
        most: most connections of a device.
    """

    def __init__(self, pump: Pump, upstream: tuple[str, int], clock: Clock, most: int) -> None:
        self.upstream = upstream
        self._pump, self._clock, self._most = pump, clock, most
        self._log = SparseLog(log, clock)
        self._loop = pump.loop
        self.opened = Counter[str]()
        # By client, in the order in which they came; some have been closed.
        self._connections = defaultdict[str, list[RelayedConnection]](list)
        self._listeners: list[socket.socket] = []
        self._dials: dict[RelayedConnection, asyncio.Task[None]] = {}
        self._ending_silent = self._loop.create_task(self._end_silent())

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
        keep_alive(listener)  # and this
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        self._listen_on(listener, device)
        return int(listener.getsockname()[1])

    def connections_of(self, device: DeviceLink) -> list[RelayedConnection]:
        """The open connections of a device."""
        return [each for each in self._connections[device.client] if not each.closed]

    def close(self) -> None:
        """Stop to listen and to connect."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for dial in self._dials.values():
            dial.cancel()
        self._ending_silent.cancel()

    async def _end_silent(self) -> None:
        """Reset the connections over which a device has sent nothing in SILENT_S, without end."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + SILENT_S / 2)
            latest = self._pump.now() - SILENT_S
            for connection in [each for here in self._connections.values() for each in here]:
                began = connection.established_at
                if began is not None and began <= latest and connection.silent:
                    connection.abort()

    def _make_room(self, device: DeviceLink) -> bool:
        """Return whether a device may have another connection. If need be, one is dropped."""
        here = [each for each in self._connections[device.client] if not each.released]
        if len(here) >= self._most:
            expendable = next((each for each in here if each.expendable), None)
            if expendable is not None:
                expendable.abort()
                here.remove(expendable)
        self._connections[device.client] = here
        return len(here) < self._most

    def _accept(self, listener: socket.socket, device: DeviceLink) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._log.warning(f"{device.client}: a connection cannot be accepted: {error}")
            self._loop.remove_reader(listener)  # else the loop would call this again and again
            self._loop.call_later(_ACCEPT_AGAIN_S, self._listen_on, listener, device)
            return
        if not self._make_room(device):
            self._log.warning(
                f"{device.client}: a connection is reset, because the link has {self._most} already"
            )
            reset(accepted)
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opened[device.client] += 1
        number = self.opened[device.client]
        connection = RelayedConnection(self._pump, device, number, accepted, self._stop_dialling)
        connection.fit_buffers()
        self._connections[device.client].append(connection)
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
            self._dials[connection] = dial
            dial.add_done_callback(lambda _: self._dials.pop(connection, None))

    def _stop_dialling(self, connection: RelayedConnection) -> None:
        if (dial := self._dials.pop(connection, None)) is not None:
            dial.cancel()

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
                self._log.warning(f"{name}: cannot connect to {host}:{port}: {why}")
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
