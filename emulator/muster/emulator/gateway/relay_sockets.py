"""The sockets of relayed connections: their buffers, and how they are closed."""

import asyncio
import socket
import struct

from muster.common.rates.recording import DIRECTIONS
from muster.emulator.gateway.device_link import DeviceLink

SCRATCH = memoryview(bytearray(256 * 1024))
"""The buffer for all reads. One is enough, because there is one process with one thread, which does
one read at a time."""

BUFFER_S = 0.02
BUFFER_BYTES = 64 * 1024, 1024 * 1024
"""Socket buffers of a shaped link hold the bytes that pass in BUFFER_S, but at least the first and
at most the second number of bytes. The kernel's default is megabytes, so a device on a slow link
would believe that it had sent them."""

_LINGER_S = 1.0
"""Seconds to wait for a peer to close after it was sent the end of the stream."""


class LingeringSocket:
    """A socket that has sent the end of the stream and waits until its peer closes too.

    It reads meanwhile, because closing a socket with unread bytes would send a reset (RST) instead
    of a FIN.

    Attributes:
        closed: whether it no longer waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, closing: socket.socket) -> None:
        self._loop, self._socket = loop, closing
        self.closed = False
        try:
            closing.shutdown(socket.SHUT_WR)
        except OSError:
            closing.close()
            self.closed = True
            return
        self._timer = loop.call_later(_LINGER_S, self.close)
        loop.add_reader(closing, self._readable)

    def close(self) -> None:
        """Wait no longer."""
        if not self.closed:
            self.closed = True
            self._timer.cancel()
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _readable(self) -> None:
        try:
            if self._socket.recv_into(SCRATCH):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass
        self.close()


def reset(connection: socket.socket) -> None:
    """Close a socket so that its peer gets a reset (RST)."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        connection.close()


def fit_buffers(each: socket.socket, device: DeviceLink) -> None:
    """Set the buffer sizes of a device's socket to fit its link. The socket of a plain link keeps
    the kernel's buffers, or gets large ones if its link's buffers have been set before."""
    if all(device.plain.values()):
        if not device.fitted:
            return
        size = BUFFER_BYTES[1]
    else:
        fastest = max(device.rate_bytes(direction) for direction in DIRECTIONS)
        size = int(min(max(fastest * BUFFER_S, BUFFER_BYTES[0]), BUFFER_BYTES[1]))
        device.fitted = True
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        each.setsockopt(socket.SOL_SOCKET, option, size)
