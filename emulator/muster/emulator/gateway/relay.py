"""One connection of a device, carried to the server and back over plain sockets.

What a direction has read and not delivered lies in one row of bytes: those at its front are due,
the rest is with the shaper, which counts it. Whether bytes go straight through or by the shaper is
asked anew with every read, and bytes go straight only while the shaper has none of the connection;
so settings may change at any time, and no byte is lost or overtakes another.
"""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Literal

from muster.emulator.gateway.rates import Direction

if TYPE_CHECKING:
    from muster.emulator.gateway.gateway import DeviceLink, Gateway

Side = Literal["device", "upstream"]

DIRECTIONS: tuple[Direction, Direction] = ("up", "down")

_SCRATCH = memoryview(bytearray(256 * 1024))
"""What is read goes through here: one process, one thread, one read at a time."""

_BUFFER_S = 0.02
_BUFFER_BYTES = 64 * 1024, 1024 * 1024
"""Socket buffers of a shaped link: what passes in _BUFFER_S, within these. Left to itself, the
kernel takes megabytes, and a device on a slow link believes that it has sent them."""

_LINGER_S = 1.0
"""How long a peer that was told the end may take to close, before it is closed on."""


class Half:
    """One direction of a connection.

    Attributes:
        held: what was read and not delivered; the first `due` bytes are due.
        delivered: bytes, since the connection began.
    """

    def __init__(self, connection: "RelayedConnection", direction: Direction) -> None:
        self.connection, self.direction = connection, direction
        self.device, self._gateway = connection.device, connection.gateway
        self._shaper = self._gateway.shapers[direction]
        name = (direction, connection.number)
        self.flow = self._shaper.flow(self.device.lanes[direction], *name, owner=self)
        self.source: socket.socket
        self.sink: socket.socket
        self.held = bytearray()
        self.due = self.delivered = self.limit_from = 0
        self.lost = False  # bytes are read and thrown away
        self.finished = False  # the end was delivered
        self._ended = self._end_due = False
        self._reading = self._writing = False

    def begin(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self._read_on()

    def readable(self) -> None:
        """The source has bytes, an end, or an error."""
        try:
            if self.lost:
                self._throw_away()
            elif self.device.plain[self.direction] and not (self.flow.queued or self.flow.flying):
                self._straight()
            else:
                self._shaped()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.connection.broken("device" if self.direction == "up" else "upstream")

    def deliver(self, nbytes: int) -> None:
        """More bytes are due; 0: the end is."""
        self.due += nbytes
        self._end_due |= not nbytes

    def flush(self) -> None:
        """Deliver what is due and what the sink takes."""
        try:
            while self.due:
                self._send()
        except (BlockingIOError, InterruptedError):
            self._write_on()
            return
        except OSError:
            self.connection.broken("upstream" if self.direction == "up" else "device")
            return
        if self.connection.closed:  # by a limit
            return
        self._write_off()
        if self._end_due and not self.held and not self.finished:
            self._finish()
        else:
            self.relieve()

    def relieve(self) -> None:
        """Read on if there is room again."""
        if self._reading or self._ended or self.connection.frozen or self.connection.closed:
            return
        if self.device.plain[self.direction]:
            roomy = not self.held
        else:
            half = self.flow.lane.queue_bytes // 2
            roomy = self._shaper.room(self.flow, len(self.held)) >= half
        if roomy:
            self._read_on()

    def lose(self) -> None:
        """Throw away what there is and what comes."""
        self.lost = True
        self.mute()
        if self.connection.established and not (self._ended or self.connection.frozen):
            self._read_on()

    def mute(self) -> None:
        """Neither read nor deliver; what there is is lost."""
        self._read_off()
        self._write_off()
        self._shaper.drop(self.flow)
        self.held.clear()
        self.due = 0
        self._end_due = False

    def _throw_away(self) -> None:
        if not self.source.recv_into(_SCRATCH):
            self._ended = True
            self._read_off()

    def _straight(self) -> None:
        if self.held:
            self._read_off()  # until the sink has taken it
            return
        nbytes = self.source.recv_into(_SCRATCH)
        if not nbytes:
            self._source_ended()
            return
        self.device.read[self.direction] += nbytes
        try:
            sent = self.sink.send(_SCRATCH[:nbytes])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.connection.broken("upstream" if self.direction == "up" else "device")
            return
        self._count(sent)
        if sent < nbytes:
            self.held += _SCRATCH[sent:nbytes]
            self.due += nbytes - sent
            self._read_off()
            self._write_on()

    def _shaped(self) -> None:
        room = self._shaper.room(self.flow, len(self.held))
        if room <= 0:
            self._read_off()  # until relieved
            return
        nbytes = self.source.recv_into(_SCRATCH[:room])
        if not nbytes:
            self._source_ended()
            return
        self.device.read[self.direction] += nbytes
        self.held += _SCRATCH[:nbytes]
        self._shaper.arrive(self.flow, nbytes, self._gateway.now())
        self._gateway.pump(self.direction)

    def _source_ended(self) -> None:
        self._ended = True
        self._read_off()
        self._shaper.end(self.flow, self._gateway.now())
        self._gateway.pump(self.direction)

    def _send(self) -> None:
        nbytes = self.due
        limit = self.device.standing.limit(self.direction)
        if limit is not None:
            nbytes = min(nbytes, limit - (self.delivered - self.limit_from))
        with memoryview(self.held) as held, held[:nbytes] as piece:
            sent = self.sink.send(piece)
        del self.held[:sent]
        self.due -= sent
        self._count(sent)
        if limit is not None and self.delivered - self.limit_from >= limit:
            self.connection.abort()

    def _count(self, nbytes: int) -> None:
        self.delivered += nbytes
        self.device.delivered[self.direction] += nbytes

    def _finish(self) -> None:
        self.finished = True
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.connection.broken("upstream" if self.direction == "up" else "device")
        else:
            self.connection.half_finished()

    def _read_on(self) -> None:
        if not self._reading:
            self._reading = True
            self._gateway.loop.add_reader(self.source, self.readable)

    def _read_off(self) -> None:
        if self._reading:
            self._reading = False
            self._gateway.loop.remove_reader(self.source)

    def _write_on(self) -> None:
        if not self._writing:
            self._writing = True
            self._gateway.loop.add_writer(self.sink, self.flush)

    def _write_off(self) -> None:
        if self._writing:
            self._writing = False
            self._gateway.loop.remove_writer(self.sink)


class RelayedConnection:
    """Two sockets, and what goes between them.

    Attributes:
        frozen: nothing is read or forwarded, and nobody is told of anything.
    """

    def __init__(
        self, gateway: "Gateway", device: "DeviceLink", number: int, accepted: socket.socket
    ) -> None:
        self.gateway, self.device, self.number = gateway, device, number
        self._sockets: dict[Side, socket.socket] = {"device": accepted}
        self.closed = self.frozen = False
        self.halves = {direction: Half(self, direction) for direction in DIRECTIONS}

    @property
    def established(self) -> bool:
        return "upstream" in self._sockets

    def establish(self, upstream: socket.socket) -> None:
        """The server has answered; bytes may go."""
        if self.closed or self.frozen:
            upstream.close()
            return
        self._sockets["upstream"] = upstream
        accepted = self._sockets["device"]
        self.halves["up"].begin(accepted, upstream)
        self.halves["down"].begin(upstream, accepted)

    def fit_buffers(self) -> None:
        """Give the sockets buffers of the link's size."""
        for each in self._sockets.values():
            fit_buffers(each, self.device)

    def broken(self, side: Side) -> None:
        """The peer of one side is gone; the other side learns of it, if anything gets through."""
        if self.halves["up" if side == "device" else "down"].lost:
            self.freeze()
        else:
            self.abort()

    def freeze(self) -> None:
        """Stay, and forward nothing any more."""
        self.frozen = True
        self._mute()

    def abort(self) -> None:
        """Reset both sides at once."""
        for each in self._leave():
            try:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            finally:
                each.close()

    def close(self) -> None:
        """Tell both sides the end at once, whatever is under way."""
        for each in self._leave():
            _Lingering(self.gateway.loop, each)

    def half_finished(self) -> None:
        """One direction is through."""
        if all(half.finished for half in self.halves.values()):
            for each in self._leave():
                each.close()

    def _leave(self) -> list[socket.socket]:
        if self.closed:
            return []
        self.closed = True
        self._mute()
        self.device.connections.discard(self)
        return list(self._sockets.values())

    def _mute(self) -> None:
        for half in self.halves.values():
            half.mute()


class _Lingering:
    """A socket whose peer has been told the end, until the peer closes too.

    To close a socket that has unread bytes sends a reset, not an end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, told: socket.socket) -> None:
        self._loop, self._socket = loop, told
        try:
            told.shutdown(socket.SHUT_WR)
        except OSError:
            told.close()
            return
        self._timer = loop.call_later(_LINGER_S, self._close)
        loop.add_reader(told, self._readable)

    def _readable(self) -> None:
        try:
            if self._socket.recv_into(_SCRATCH):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass
        self._close()

    def _close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()


def fit_buffers(each: socket.socket, device: "DeviceLink") -> None:
    """Give a socket of a device buffers of its link's size; a link that is none has the kernel's,
    or large ones where it had small ones before."""
    if all(device.plain.values()):
        if not device.fitted:
            return
        size = _BUFFER_BYTES[1]
    else:
        fastest = max(device.rate_bytes(direction) for direction in DIRECTIONS)
        size = int(min(max(fastest * _BUFFER_S, _BUFFER_BYTES[0]), _BUFFER_BYTES[1]))
        device.fitted = True
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        each.setsockopt(socket.SOL_SOCKET, option, size)
