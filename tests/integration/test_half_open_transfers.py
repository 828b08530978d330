"""Transfers that stop halfway: they end after a while, and meanwhile others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import pytest

from muster.common.testing import ManualClock
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer

    Upload = grpc.aio.StreamUnaryCall[pb.SubmitMessage, pb.Receipt]
    Download = grpc.aio.UnaryStreamCall[pb.FetchRequest, pb.ModelChunk]

T = TypeVar("T")

EIGHT_CHUNKS = 8 * CHUNK_BYTES // 4
"""Parameters of a body that no window of HTTP/2 holds."""

IDLE_S = 30.0
PATIENCE_S = 5.0
"""How long a test waits for what should come at once before it fails."""


async def soon(what: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await what


async def server_of(world: MakeWorld, **changes: Any) -> tuple[World, ManualClock]:
    """A server that is not disturbed by heartbeats which nobody sends."""
    clock = ManualClock()
    settings = {"transfers": 2, "heartbeat_s": 3600, "stall_s": 1e4}
    w = await world(parameters=EIGHT_CHUNKS, time=clock, **{**settings, **changes})
    return w, clock


async def open_upload(peer: Peer, value: float = 1.0) -> Upload:
    """A Submit call that has sent its header and whose turn has come."""
    update, _ = peer.update(value)
    call = peer.stub.Submit(metadata=peer.metadata)
    await call.write(pb.SubmitMessage(header=pb.SubmitHeader(update=update)))
    await soon(call.initial_metadata())
    return call


async def open_download(peer: Peer) -> Download:
    """A Fetch call whose turn has come and of which nothing is read."""
    call = peer.stub.Fetch(pb.FetchRequest(version=0), metadata=peer.metadata)
    await soon(call.initial_metadata())
    return call


async def upload(peer: Peer) -> pb.Receipt:
    update, body = peer.update()

    async def parts() -> AsyncIterator[pb.SubmitMessage]:
        yield pb.SubmitMessage(header=pb.SubmitHeader(update=update))
        for start in range(0, len(body), CHUNK_BYTES):
            yield pb.SubmitMessage(chunk=body[start : start + CHUNK_BYTES])

    return await soon(peer.stub.Submit(parts(), metadata=peer.metadata))


async def download(peer: Peer) -> int:
    call = peer.stub.Fetch(pb.FetchRequest(version=0), metadata=peer.metadata)

    async def length() -> int:
        return sum([len(chunk.data) async for chunk in call])

    return await soon(length())


@pytest.mark.parametrize("begin", [open_upload, open_download])
async def test_half_open_transfers_let_others_pass_after_a_while(
    world: MakeWorld, begin: Callable[[Peer], Awaitable[Upload | Download]]
) -> None:
    w, clock = await server_of(world, clients="abcd")
    a, b, c, d = [await w.attend(client) for client in "abcd"]
    for peer in (a, b, c, d):
        await peer.called()
    stuck = [await begin(peer) for peer in (c, d)]
    clock.advance(IDLE_S)
    assert (await upload(a)).outcome == pb.OUTCOME_ACCEPTED
    assert await download(b) == 4 * EIGHT_CHUNKS
    for call in stuck:
        # gRPC ends a call after the message that it is sending
        if isinstance(call, grpc.aio.UnaryStreamCall):
            await soon(call.read())
        assert await soon(call.code()) is grpc.StatusCode.UNAVAILABLE
        assert "no new bytes for 30 s" in await call.details()


@pytest.mark.parametrize("begin", [open_upload, open_download])
async def test_a_session_has_one_transfer_and_the_newest_goes_on(
    world: MakeWorld, begin: Callable[[Peer], Awaitable[Upload | Download]]
) -> None:
    w, _ = await server_of(world)
    a, b = await w.both()
    await a.called()
    await b.called()
    stuck = [await begin(a) for _ in range(8)]
    assert (await upload(b)).outcome == pb.OUTCOME_ACCEPTED
    assert (await upload(a)).outcome == pb.OUTCOME_ACCEPTED
    for call in stuck:
        call.cancel()


async def test_a_transfer_ends_with_its_session(world: MakeWorld) -> None:
    w, _ = await server_of(world, transfers=1)
    a, b = await w.both()
    await a.called()
    await b.called()
    stuck = await open_upload(a)
    await w.enroll("a")
    assert await soon(stuck.code()) is grpc.StatusCode.UNAVAILABLE
    assert (await upload(b)).outcome == pb.OUTCOME_ACCEPTED


async def test_a_download_that_the_end_of_the_run_cuts_off_does_not_look_complete(
    world: MakeWorld,
) -> None:
    w, _ = await server_of(world, minimum=1)
    a, b = await w.both()
    await a.called()
    call = await b.called()
    stuck = await open_download(b)
    await b.decline(call)
    assert (await upload(a)).outcome == pb.OUTCOME_ACCEPTED
    finishing = asyncio.ensure_future(w.finish())
    while not w.coordinator.receiver.pending.traffic.ended:
        await soon(asyncio.sleep(0))
    # gRPC ends a call after the message that it is sending
    assert isinstance(await soon(stuck.read()), pb.ModelChunk)
    assert await soon(stuck.code()) is grpc.StatusCode.UNAVAILABLE
    assert "the run has ended" in await stuck.details()
    await soon(finishing)


async def test_an_empty_chunk_ends_an_upload(world: MakeWorld) -> None:
    w, _ = await server_of(world)
    a, _ = await w.both()
    await a.called()
    call = await open_upload(a)
    before = w.coordinator.patience.progress_at
    await call.write(pb.SubmitMessage(chunk=b""))
    assert await soon(call.code()) is grpc.StatusCode.INVALID_ARGUMENT
    assert "a chunk of 0 bytes" in await call.details()
    assert w.coordinator.patience.progress_at == before


async def test_a_download_counts_as_progress_only_where_it_is_new_to_its_session(
    world: MakeWorld,
) -> None:
    w, clock = await server_of(world)
    a, _ = await w.both()
    await a.called()
    progress = []
    for _ in range(2):
        clock.advance(1.0)
        await download(a)
        progress.append(w.coordinator.patience.progress_at)
    assert progress == [1.0, 1.0]


async def test_uploads_that_replace_each_other_at_once_all_end_with_a_status(
    world: MakeWorld,
) -> None:
    w, _ = await server_of(world)
    a, b = await w.both()
    await a.called()
    await b.called()
    header = pb.SubmitMessage(header=pb.SubmitHeader(update=a.update()[0]))
    *replaced, newest = [a.stub.Submit(metadata=a.metadata) for _ in range(24)]
    for call in (*replaced, newest):
        await call.write(header)
    await soon(newest.initial_metadata())
    for call in replaced:
        assert await soon(call.code()) is grpc.StatusCode.UNAVAILABLE
    newest.cancel()
    assert (await upload(b)).outcome == pb.OUTCOME_ACCEPTED
