"""Submissions that no device of muster makes: replays, chunks out of order, false lengths, and
messages that grow when they are unpacked."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.integration.conftest import FLEET

from muster.chaos.hostile_peers import HostileDevice, compression_bombs
from muster.client.connection.transport_errors import error_of
from muster.common.clock import WallClock
from muster.common.errors import Interrupted
from muster.common.testing import ManualClock
from muster.server.rpc.limits import FAULT_S, FAULTS
from muster.v1 import fleet_pb2 as pb
from muster.wire import UPLOAD_BYTES
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer

CHUNKS = 4
LARGE = CHUNKS * UPLOAD_BYTES // 4
"""Parameters of a body of four chunks."""

DUPLICATES = 100
"""Updates of a device that do not count and are entered in a round."""

REPLAYS = 2_000
MANY_REPLAYS = 1_000_000


async def submit(peer: Peer, update: pb.Update, body: bytes, *order: int) -> pb.Receipt:
    """Upload a body whose chunks are sent in this order."""
    chunks = [
        body[number * UPLOAD_BYTES : (number + 1) * UPLOAD_BYTES]
        for number in order or range(CHUNKS)
    ]
    return await peer.upload(update, chunks)


def distinct(peer: Peer, call: pb.Call) -> tuple[pb.Update, bytes]:
    """An update whose chunks all differ."""
    body = b"".join(bytes([number]) * UPLOAD_BYTES for number in range(CHUNKS))
    update, _ = peer.update(round=call.round, attempt=call.attempt, checksum=checksum(body))
    return update, body


async def finish(w: World, *peers: Peer) -> Counter[tuple[str, str]]:
    """Let the others send what they should; return (client, outcome) in the ledger."""
    for peer in peers:
        call = await peer.called()
        receipt = await submit(peer, *distinct(peer, call))
        assert receipt.outcome == pb.OUTCOME_ACCEPTED
    assert (await w.finish())[0] == "completed"
    return Counter((client, outcome) for client, outcome, _ in w.outcomes())


@pytest.mark.parametrize(
    "replays",
    [REPLAYS, pytest.param(MANY_REPLAYS, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
async def test_of_one_submission_that_is_sent_again_and_again_one_is_accepted(
    world: MakeWorld, replays: int
) -> None:
    clock = ManualClock()  # the limits of calls do not recover
    w = await world(parameters=LARGE, time=clock)
    a, b = await w.both()
    update, body = distinct(a, await a.called())
    assert (await submit(a, update, body)).outcome == pb.OUTCOME_ACCEPTED
    before, answers = resident_bytes(), Counter[str]()
    for _ in range(replays - 1):
        try:
            receipt = await submit(a, update, body, 0)
            answers[pb.Outcome.Name(receipt.outcome)] += 1
        except grpc.aio.AioRpcError as error:
            hidden = isinstance(error_of(error), Interrupted)
            answers["unseen" if hidden else error.code().name] += 1
    # The sender is in this process too, and gRPC's client keeps some 100 bytes of each of these
    # calls for good. A server in a process of its own keeps nothing.
    assert resident_bytes() - before < (64 << 20) + 160 * replays
    # gRPC's client does not show the answer of a call that ended while the client still wrote.
    unseen = answers.pop("unseen", 0)
    expected = Counter(
        OUTCOME_ACCEPTED=DUPLICATES,
        INVALID_ARGUMENT=FAULTS,
        RESOURCE_EXHAUSTED=replays - 1 - DUPLICATES - FAULTS,
    )
    assert answers <= expected
    assert (expected - answers).total() == unseen
    received = [event for event in w.events if event["event"] == "received"]
    assert [event["client"] for event in received] == ["a"]
    clock.advance(10 * FAULT_S)  # devices a and b have the same credentials here
    counted = await finish(w, b)
    assert (counted[("a", "folded")], counted[("b", "folded")]) == (1, 1)


def resident_bytes() -> int:
    """Memory of this process, which is the server's too."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_chunks_out_of_order_are_refused_and_the_right_body_is_accepted(
    world: MakeWorld,
) -> None:
    w = await world(parameters=LARGE)
    a, b = await w.both()
    update, body = distinct(a, await a.called())
    for order in [(1, 0, 2, 3), (3, 2, 1, 0), (0, 0, 1, 2)]:
        receipt = await submit(a, update, body, *order)
        assert (receipt.outcome, receipt.reason) == (pb.OUTCOME_REFUSED, pb.REASON_CHECKSUM)
    assert (await submit(a, update, body)).outcome == pb.OUTCOME_ACCEPTED
    assert (await finish(w, b))[("a", "folded")] == 1


@pytest.mark.parametrize("length", [0, 1, 4 * LARGE - 4, 4 * LARGE + 4, 1 << 40])
async def test_a_header_that_states_another_length_is_refused_before_its_body(
    world: MakeWorld, length: int
) -> None:
    w = await world(parameters=LARGE)
    a, b = await w.both()
    update, _ = distinct(a, await a.called())
    update.length = length
    receipt = await submit(a, update, b"", 0)
    assert (receipt.outcome, receipt.reason) == (pb.OUTCOME_REFUSED, pb.REASON_LENGTH)
    assert await finish(w, b) == {("a", "refused"): 1, ("b", "folded"): 1}


async def test_more_bytes_than_the_header_states_end_the_upload(world: MakeWorld) -> None:
    w = await world(parameters=LARGE)
    a, b = await w.both()
    update, body = distinct(a, await a.called())
    sizes = [UPLOAD_BYTES] * (CHUNKS - 1) + [UPLOAD_BYTES + 4]
    with pytest.raises(grpc.aio.AioRpcError, match="the header stated fewer") as error:
        await a.upload(update, [bytes(size) for size in sizes])
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    missing = await submit(a, update, body, 0)  # what is held is not lost, and nothing is doubled
    assert (missing.outcome, missing.offset) == (pb.OUTCOME_RESUME, (CHUNKS - 1) * UPLOAD_BYTES)
    update_again, other = a.update(2.0)
    assert (await submit(a, update_again, other)).outcome == pb.OUTCOME_ACCEPTED
    assert (await finish(w, b))[("a", "folded")] == 1


async def test_a_message_is_not_unpacked_beyond_the_largest_message(world: MakeWorld) -> None:
    w = await world()
    a, b = await w.both()
    hostile = HostileDevice("compression bombs", "a", FLEET.shown, w.channel, WallClock())
    answers = [call async for call in compression_bombs(hostile, a, await a.called())]
    for call in answers:
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "message larger than max" in await call.details()
    assert len(answers) == 4
    a = await w.attend("a")  # its stream was replaced by the bomb's
    for peer in (a, b):
        call = await peer.called()
        await peer.send(peer.update(attempt=call.attempt))
    assert (await w.finish())[0] == "completed"
