"""Downloads of models: chunk by chunk, in turns.

gRPC cannot end a call in the middle of a message. If the device does not read its download, the
download therefore gives its turn to others, and it ends when its last chunk has been read or its
connection closes.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc

from muster.common.clock import Clock
from muster.common.errors import Interrupted
from muster.common.masks import Mask
from muster.common.tensors import WIRE
from muster.server.coordination.coordinator import Coordinator
from muster.server.fleet.devices import ConnectedPack
from muster.server.rpc.transfers import TransferQueue, Turn
from muster.v1 import fleet_pb2 as pb
from muster.wire import messages
from muster.wire.messages import Fetch

Context = grpc.aio.ServicerContext[Any, Any]

_UNREAD = 8
"""The most ended downloads of one process whose last chunk may still wait in gRPC's memory. A chunk
is up to a mebibyte."""


class Download(NamedTuple):
    """What a request asks for.

    Attributes:
        part: the coordinates of the model that it has; None: all.
        length: bytes of its body.
    """

    asked: Fetch
    part: Mask | None
    length: int


class Downloads:
    """Sends models to devices."""

    def __init__(self, coordinator: Coordinator, transfers: TransferQueue, clock: Clock) -> None:
        self._coordinator = coordinator
        self._transfers = transfers
        self._clock = clock
        self._unread = Counter[str]()

    async def send(self, request: pb.FetchRequest, pack: ConnectedPack, context: Context) -> None:
        """Wait for the pack's turn, then send the chunks that the request asks for.

        Raises:
            RemoteProtocolError: no download of these chunks begins at the requested offset.
            Interrupted: the turn was ended early, or earlier downloads of the process are unread.
        """
        asked, asked_at = messages.decode_fetch(request), self._clock.now()
        client = next(iter(pack.devices))
        if (unread := self._unread[client]) >= _UNREAD:
            raise Interrupted(
                f"{unread} ended downloads were not read to their last chunk; expected fewer than "
                f"{_UNREAD}. Read them, or close their connections"
            )
        download = await self._download(asked, pack, context)
        left = max(0, download.length - asked.offset)
        sending: asyncio.Task[None] | None = None
        try:
            async with self._transfers.turn(pack, left) as turn:
                chunks = await self._chunks(download, context)
                sending = asyncio.create_task(
                    self._write(chunks, download, asked_at, pack, turn, context)
                )
                await asyncio.shield(sending)
                self._require_running()  # else it was cut off, and would look complete
        except Interrupted:
            if sending is not None:
                self._unread[client] += 1
                try:
                    await sending
                finally:
                    self._unread[client] -= 1
            raise
        finally:
            if sending is not None:
                sending.cancel()

    async def _download(self, asked: Fetch, pack: ConnectedPack, context: Context) -> Download:
        """Return what a request asks for, or abort the call."""
        try:
            part = self._coordinator.part_for(pack, asked.client, asked.round)
        except KeyError:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"the devices of the group {pack.group!r} fetch for their open call; "
                f"{asked.client!r} has none for round {asked.round}",
            )
        if part is None:
            return Download(asked, None, self._coordinator.receiver.formats.whole_bytes)
        return Download(asked, part, part.size * WIRE.itemsize)

    async def _chunks(self, download: Download, context: Context) -> Iterable[bytes]:
        """Return the serialised messages of a download, or abort the call."""
        coordinator, asked = self._coordinator, download.asked
        self._require_running()
        try:
            return coordinator.model_from(
                asked.version, asked.offset, asked.chunk_bytes, download.part
            )
        except KeyError:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"version {asked.version} was asked for; this server has version "
                f"{coordinator.committed.version}",
            )
        except IndexError:
            await context.abort(
                grpc.StatusCode.OUT_OF_RANGE,
                f"expected an offset of at most {download.length} bytes; found {asked.offset}. "
                f"Fetch from 0",
            )

    def _require_running(self) -> None:
        if self._coordinator.receiver.pending.traffic.ended:
            raise Interrupted("the run has ended; nothing is sent any more")

    async def _write(
        self,
        chunks: Iterable[bytes],
        download: Download,
        asked_at: float,
        pack: ConnectedPack,
        turn: Turn,
        context: Context,
    ) -> None:
        """Write chunks while the turn lasts. A chunk that is new to the session is progress."""
        # In this task, which is never cancelled in the middle of an operation: gRPC could not end a
        # call with a status while another operation is under way.
        await context.send_initial_metadata(())  # it is the device's turn
        (asked, part, length), receiver = download, self._coordinator.receiver
        patience = self._coordinator.patience
        traffic, key, end = receiver.pending.traffic, receiver.newest_call(pack), asked.offset
        client = "" if part is None else asked.client
        with traffic.download(pack, key, asked.offset, length, asked_at) as transfer:
            for chunk in chunks:
                if traffic.ended:  # the run has ended since this download was admitted
                    return
                await context.write(chunk)
                end = min(length, end + asked.chunk_bytes)
                transfer.bytes = end - asked.offset
                if turn.ended or traffic.ended:
                    return
                turn.moved_at = patience.monotonic()
                if (asked.version, end) > pack.fetched.get(client, (0, 0)):
                    pack.fetched[client] = asked.version, end
                    patience.renew()
            transfer.ending = "complete"
