"""Downloads over connections that break at chosen points."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from muster.client.connection.link import ServerLink
from muster.common.clock import WallClock
from muster.common.errors import RemoteProtocolError
from muster.common.exchange import Call, Key
from muster.common.lines import LinkModel
from muster.v1 import fleet_pb2 as pb
from muster.wire.bodies import checksum, chunk_message, chunks
from muster.wire.in_memory import FrameFate, Host, InMemoryNetwork
from muster.wire.in_memory.frames import Frame, FrameKind

BODY = bytes(range(256)) * 100
CHUNK = 16 << 10
SLOW = LinkModel(down_bps=1e3)
"""Its device asks for chunks of 16 KiB, two of which make up the body."""


class Breaks:
    """Breaks a connection before each of some frames of Fetch, counted from 0."""

    def __init__(self, *numbers: int, kind: FrameKind | None = None) -> None:
        self._numbers = numbers
        self._kind = kind
        self._seen = 0
        self.offsets: list[int] = []

    def delay_s(self, source: str, target: str) -> float:
        return 0.0

    def reachable(self, source: str, target: str) -> bool:
        return True

    def judge(self, source: str, target: str, method: str, frame: Frame) -> FrameFate:
        if source == "server" and self._kind in (None, frame.kind):
            self._seen += 1
            if self._seen - 1 in self._numbers:
                return FrameFate.BREAKS_BEFORE
        return FrameFate.ARRIVES


async def fetched(breaks: Breaks, serve: Callable[[pb.FetchRequest], bytes]) -> bytes | None:
    """What a device makes of a server whose answers to Fetch are chunks of `serve(request)`."""
    network = InMemoryNetwork(breaks)

    async def fetch(request: pb.FetchRequest, context: Any) -> None:
        breaks.offsets.append(request.offset)
        body = serve(request)
        await context.send_initial_metadata(())
        for chunk in chunks(body, 0, request.chunk_bytes):
            await context.write(chunk_message(chunk))

    server = Host(network, "server").server([])
    handler: Any = grpc.unary_stream_rpc_method_handler(fetch, pb.FetchRequest.FromString)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("muster.v1.Fleet", {"Fetch": handler}),)
    )
    server.add_insecure_port("server:1")
    await server.start()
    link = ServerLink("server:1", bytes(16), WallClock(), SLOW, Host(network, "device"))
    call = Call(Key("a", 1, 1), 0, 0.0, checksum(BODY))
    try:
        found = await link.fetch(call, len(BODY))
        return None if found is None else bytes(found[0])
    finally:
        await link.close()


async def test_a_break_between_the_last_byte_and_the_end_of_the_stream_costs_nothing() -> None:
    breaks = Breaks(0, kind=FrameKind.STATUS)
    body = await fetched(breaks, lambda request: BODY[request.offset :])
    assert body == BODY
    assert breaks.offsets == [0], "the body was complete: there was nothing to ask for"


@pytest.mark.parametrize("frame", range(4))
async def test_a_break_before_any_frame_is_resumed(frame: int) -> None:
    breaks = Breaks(frame)
    body = await fetched(breaks, lambda request: BODY[request.offset :])
    assert body == BODY
    assert breaks.offsets in ([0], [0, 0], [0, CHUNK])


async def test_a_body_that_comes_too_long_is_fetched_again_and_then_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="came 5 times as 25604 bytes"):
        await fetched(Breaks(), lambda request: BODY + b"more")


async def test_a_body_that_was_damaged_once_is_fetched_again() -> None:
    damaged = [BODY[:-1] + b"?"]
    breaks = Breaks()
    body = await fetched(breaks, lambda request: damaged.pop() if damaged else BODY)
    assert body == BODY
    assert breaks.offsets == [0, 0]


async def test_a_stream_that_ends_early_is_not_tried_for_ever() -> None:
    with pytest.raises(RemoteProtocolError, match="came 5 times as 0 bytes"):
        await fetched(Breaks(), lambda request: b"")
