"""Relays one connection of a device to the server and back over plain sockets.

Each direction holds the bytes that it has read but not delivered in one buffer. The first of them
are due; the others wait for the shaper, which only counts them. Every read decides again whether
bytes bypass the shaper, and they do so only while the shaper has none of this connection. So
settings may change at any time, and no byte is lost or overtakes another.
"""

import socket
from collections.abc import Callable
from typing import Literal

from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.device_link import DeviceLink
from muster.emulator.gateway.pump import Pump
from muster.emulator.gateway.relay_sockets import SCRATCH, LingeringSocket, fit_buffers, reset

Side = Literal["device", "upstream"]


class Half:
    """One direction of a connection.

    Attributes:
        held: bytes that were read but not delivered; the first `due` of them are due.
        heard: whether the source has sent anything.
        delivered: number of bytes delivered since the connection began.
    """

    def __init__(self, connection: "RelayedConnection", direction: Direction) -> None:
        self.connection, self.direction = connection, direction
        self.device, self._pump = connection.device, connection.pump
        self._shaper = self._pump.shapers[direction]
        name = (direction, connection.number)
        self.flow = self._shaper.flow(self.device.lanes[direction], *name, owner=self)
        self.source: socket.socket
        self.sink: socket.socket
        self.held = bytearray()
        self.due = self.delivered = self.limit_from = 0
        self.heard = False
        self.lost = False  # bytes are read and thrown away
        self.finished = False  # the end of the stream was delivered
        self._ended = self._end_due = False
        self._reading = self._writing = False

    def begin(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self._read_on()

    def readable(self) -> None:
        """Read from the source, which has bytes, the end of the stream, or an error."""
        self.heard = True
        try:
            if self.device.active_faults.spent:
                self.connection.freeze()
            elif self.lost:
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
        """Note that more bytes are due; with 0 bytes, the end of the stream is due."""
        self.due += nbytes
        self._end_due |= not nbytes

    def flush(self) -> None:
        """Deliver the bytes that are due, as far as the sink takes them."""
        if self.device.active_faults.spent:
            self.connection.freeze()
            return
        try:
            while self.due:
                self._send()
        except (BlockingIOError, InterruptedError):
            self._write_on()
            return
        except OSError:
            self.connection.broken("upstream" if self.direction == "up" else "device")
            return
        if self.connection.closed or self.connection.frozen:  # by the fault `limit` or `quota`
            return
        self._write_off()
        if self._end_due and not self.held and not self.finished:
            self._finish()
        else:
            self.relieve()

    def relieve(self) -> None:
        """Resume reading if there is room again."""
        if self._reading or self._ended or self.connection.frozen or self.connection.closed:
            return
        if self.device.plain[self.direction]:
            roomy = not self.held
        else:
            roomy = self._shaper.room(self.flow, len(self.held)) >= self.flow.lane.refill_bytes
        if roomy:
            self._read_on()

    def lose(self) -> None:
        """Throw away all bytes that are held or arrive from now on."""
        self.lost = True
        self.mute()
        if self.connection.established and not (self._ended or self.connection.frozen):
            self._read_on()

    def mute(self) -> None:
        """Stop reading and delivering, and drop all bytes that are held."""
        self._read_off()
        self._write_off()
        self._shaper.drop(self.flow)
        self.held.clear()
        self.due = 0
        self._end_due = False

    def _throw_away(self) -> None:
        if not self.source.recv_into(SCRATCH):
            self._ended = True
            self._read_off()

    def _straight(self) -> None:
        if self.held:
            self._read_off()  # until the sink has taken these bytes
            return
        nbytes = self.source.recv_into(SCRATCH)
        if not nbytes:
            self._source_ended()
            return
        self.device.read[self.direction] += nbytes
        try:
            sent = self.sink.send(SCRATCH[:nbytes])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.connection.broken("upstream" if self.direction == "up" else "device")
            return
        self._count(sent)
        if sent < nbytes:
            self.held += SCRATCH[sent:nbytes]
            self.due += nbytes - sent
            self._read_off()
            self._write_on()

    def _shaped(self) -> None:
        room = self._shaper.room(self.flow, len(self.held))
        if room <= 0:
            self._read_off()  # until `relieve` finds room
            return
        nbytes = self.source.recv_into(SCRATCH[:room])
        if not nbytes:
            self._source_ended()
            return
        self.device.read[self.direction] += nbytes
        self.held += SCRATCH[:nbytes]
        self._shaper.arrive(self.flow, nbytes, self._pump.now())
        self._pump.pump(self.direction)

    def _source_ended(self) -> None:
        self._ended = True
        self._read_off()
        self._shaper.end(self.flow, self._pump.now())
        self._pump.pump(self.direction)

    def _send(self) -> None:
        nbytes = self.due
        left = self._left()
        if left is not None:
            nbytes = min(nbytes, left)
        with memoryview(self.held) as held, held[:nbytes] as piece:
            sent = self.sink.send(piece)
        del self.held[:sent]
        self.due -= sent
        self._count(sent)
        if left is not None and sent == left:
            self.device.struck += 1
            self._use_up()

    def _left(self) -> int | None:
        """Bytes that faults let this connection deliver yet; None: no limit."""
        faults, way = self.device.active_faults, self.direction
        left = []
        if (limit := faults.limit(way)) is not None:
            left.append(limit - (self.delivered - self.limit_from))
        if (quota := faults.quota(way)) is not None:
            left.append(quota - (self.device.delivered[way] - self.device.quota_from[way]))
        return max(0, min(left)) if left else None

    def _use_up(self) -> None:
        """Do what follows when nothing is left: silence for a quota, otherwise a reset."""
        faults, way = self.device.active_faults, self.direction
        quota = faults.quota(way)
        if quota is not None and self.device.delivered[way] - self.device.quota_from[way] >= quota:
            faults.spent.add(way)
            self.connection.freeze()
        else:
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
            self._pump.loop.add_reader(self.source, self.readable)

    def _read_off(self) -> None:
        if self._reading:
            self._reading = False
            self._pump.loop.remove_reader(self.source)

    def _write_on(self) -> None:
        if not self._writing:
            self._writing = True
            self._pump.loop.add_writer(self.sink, self.flush)

    def _write_off(self) -> None:
        if self._writing:
            self._writing = False
            self._pump.loop.remove_writer(self.sink)


class RelayedConnection:
    """A device's connection: its socket, the socket to the server, and the relay between them.

    Attributes:
        frozen: nothing is read or forwarded any more, and neither peer is told.
        established_at: when it was connected to the server, in seconds since the gateway began;
            None: it is not yet.

    Args:
        number: the number of the device's connection, from 1; it determines random numbers.
        closed: called when the connection closes.
    """

    def __init__(
        self,
        pump: Pump,
        device: DeviceLink,
        number: int,
        accepted: socket.socket,
        closed: Callable[["RelayedConnection"], None],
    ) -> None:
        self.pump, self.device, self.number = pump, device, number
        self._tell_closed = closed
        self._sockets: dict[Side, socket.socket] = {"device": accepted}
        self._lingering: list[LingeringSocket] = []
        self.closed = self.frozen = False
        self.established_at: float | None = None
        self.halves = {direction: Half(self, direction) for direction in DIRECTIONS}

    @property
    def established(self) -> bool:
        return self.established_at is not None

    @property
    def released(self) -> bool:
        """Whether it is closed and has no socket any more."""
        return self.closed and all(each.closed for each in self._lingering)

    @property
    def silent(self) -> bool:
        """Whether it is open and nothing of the device has been read. Nothing is read before the
        server is connected."""
        return not (self.halves["up"].heard or self.frozen or self.closed)

    @property
    def expendable(self) -> bool:
        """Whether it may be aborted for a new connection: the device has sent nothing over it, or
        nothing comes through it any more."""
        return self.silent or self.frozen or self.closed

    def establish(self, upstream: socket.socket) -> None:
        """Begin to relay bytes to and from the socket `upstream`, which is connected to the
        server."""
        if self.closed or self.frozen:
            upstream.close()
            return
        self._sockets["upstream"] = upstream
        self.established_at = self.pump.now()
        accepted = self._sockets["device"]
        self.halves["up"].begin(accepted, upstream)
        self.halves["down"].begin(upstream, accepted)

    def fit_buffers(self) -> None:
        """Set the sockets' buffer sizes to fit the link."""
        for each in self._sockets.values():
            fit_buffers(each, self.device)

    def broken(self, side: Side) -> None:
        """Handle the loss of the peer on one side: reset the other side too, unless this
        direction's bytes are being lost."""
        if self.halves["up" if side == "device" else "down"].lost:
            self.freeze()
        else:
            self.abort()

    def freeze(self) -> None:
        """Keep the sockets open, but forward nothing any more."""
        self.frozen = True
        self._mute()

    def abort(self) -> None:
        """Reset both sides at once."""
        for each in self._leave():
            reset(each)
        for lingering in self._lingering:
            lingering.close()

    def close(self) -> None:
        """Send both sides the end of the stream (FIN) at once, and drop all bytes under way."""
        self._lingering += [LingeringSocket(self.pump.loop, each) for each in self._leave()]

    def half_finished(self) -> None:
        """Close the connection if both directions have delivered their end."""
        if all(half.finished for half in self.halves.values()):
            for each in self._leave():
                each.close()

    def _leave(self) -> list[socket.socket]:
        if self.closed:
            return []
        self.closed = True
        self._mute()
        self._tell_closed(self)
        return list(self._sockets.values())

    def _mute(self) -> None:
        for half in self.halves.values():
            half.mute()
