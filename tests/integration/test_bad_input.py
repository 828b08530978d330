"""Whatever a peer sends, it is refused with a reason, and the server goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.integration.conftest import FLEET, OPERATOR_METADATA

from muster.client.connection.link import ServerLink
from muster.common.clock import WallClock
from muster.common.errors import RunFailed
from muster.common.exchange import Call, Fingerprint, Identity, Key
from muster.common.lines import LinkModel
from muster.common.shared_lines import SharedLine
from muster.common.testing import ManualClock
from muster.v1 import fleet_pb2 as pb
from muster.v1 import operator_pb2
from muster.wire import CHUNK_BYTES, INLINE_BYTES, SESSION, TOKEN
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer

LARGE = INLINE_BYTES  # parameters: four times what travels inline


async def finish_well(world: World, *peers: Peer) -> None:
    """The round can still be finished by right updates, and only they count."""
    for peer in peers:
        await peer.send(peer.update())
    assert (await world.finish())[0] == "completed"
    folded = [client for client, outcome, _ in world.outcomes() if outcome == "folded"]
    assert sorted(folded) == ["a", "b"]


async def test_another_protocol_version_is_refused(world: MakeWorld) -> None:
    w = await world()
    reply = await w.enroll("a", protocol_version=99)
    assert reply.refusal.reason == pb.REASON_PROTOCOL_VERSION
    assert "speaks protocol 99" in reply.refusal.detail
    await finish_well(w, *await w.both())


async def test_an_unknown_client_is_refused(world: MakeWorld) -> None:
    w = await world()
    reply = await w.enroll("stranger")
    assert reply.refusal.reason == pb.REASON_UNKNOWN_CLIENT
    assert "not one of the 2 devices" in reply.refusal.detail


async def test_a_device_with_other_data_is_refused(world: MakeWorld) -> None:
    w = await world()
    reply = await w.enroll("a", examples=11)
    assert reply.refusal.reason == pb.REASON_EXAMPLES


@pytest.mark.parametrize("metadata", [(), ((TOKEN, b"wrong"),)], ids=["none", "wrong"])
async def test_enrolling_takes_the_fleets_token(world: MakeWorld, metadata: Any) -> None:
    w = await world()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await w.stub().Enroll(pb.EnrollRequest(), metadata=metadata)
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("session", [None, b"", b"0123456789abcdef"])
async def test_every_other_call_takes_a_session(world: MakeWorld, session: bytes | None) -> None:
    w = await world()
    stub, metadata = w.stub(), () if session is None else ((SESSION, session),)
    calls = [
        stub.Attend(metadata=metadata),
        stub.Fetch(pb.FetchRequest(), metadata=metadata),
        stub.Submit(metadata=metadata),  # a write would race with the refusal
    ]
    assert [await call.code() for call in calls] == [grpc.StatusCode.UNAUTHENTICATED] * 3


async def test_the_operators_calls_take_the_operators_token(world: MakeWorld) -> None:
    w = await world()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await w.operator().Stop(operator_pb2.StopRequest(), metadata=((TOKEN, bytes(16)),))
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    await finish_well(w, *await w.both())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round": 2}, pb.REASON_WRONG_ROUND),
        ({"attempt": 2}, pb.REASON_NOT_CALLED),
        ({"checksum": bytes(16)}, pb.REASON_CHECKSUM),
        ({"body": bytes(8)}, pb.REASON_CHECKSUM),
    ],
)
async def test_a_wrong_update_is_refused_and_a_right_one_may_follow(
    world: MakeWorld, changes: dict[str, Any], reason: int
) -> None:
    w = await world()
    a, b = await w.both()
    await a.called()
    await a.send(a.update(**changes))
    receipt = await a.receipt()
    assert (receipt.outcome, receipt.reason) == (pb.OUTCOME_REFUSED, reason)
    await finish_well(w, a, b)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"length": 12}, "length"), ({"examples": 0}, "examples"), ({"examples": 11}, "examples")],
)
async def test_an_update_with_a_wrong_header_is_refused_and_the_round_goes_on_without_it(
    world: MakeWorld, changes: dict[str, Any], reason: str
) -> None:
    w = await world()
    a, b = await w.both()
    await a.called()
    await a.send(a.update(**changes))
    assert (await a.receipt()).outcome == pb.OUTCOME_REFUSED
    await b.called()
    await b.send(b.update())
    assert (await w.finish())[0] == "completed"
    assert w.outcomes() == [("a", "refused", reason), ("b", "folded", None)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_an_update_that_is_not_finite_is_refused_and_the_round_goes_on_without_it(
    world: MakeWorld, value: float
) -> None:
    w = await world()
    a, b = await w.both()
    await a.called()
    await a.send(a.update(value))
    receipt = await a.receipt()
    assert (receipt.outcome, receipt.reason) == (pb.OUTCOME_REFUSED, pb.REASON_NOT_FINITE)
    await b.called()
    await b.send(b.update())
    assert (await w.finish())[0] == "completed"
    assert w.outcomes() == [("a", "refused", "not finite"), ("b", "folded", None)]


@pytest.mark.parametrize("length", [0, 9, 12, 20])
async def test_a_body_that_is_not_as_long_as_it_says_is_refused_and_the_round_goes_on(
    world: MakeWorld, length: int
) -> None:
    w = await world()
    a, b = await w.both()
    await a.called()
    body = bytes(length)
    await a.send(a.update(body=body, checksum=checksum(body)))
    receipt = await a.receipt()
    assert (receipt.outcome, receipt.reason) == (pb.OUTCOME_REFUSED, pb.REASON_LENGTH)
    await b.called()
    await b.send(b.update())
    assert (await w.finish())[0] == "completed"
    assert w.outcomes() == [("a", "refused", "length"), ("b", "folded", None)]


async def test_an_update_over_the_norm_is_refused(world: MakeWorld) -> None:
    w = await world(guard={"max_norm": 2.0})
    a, _ = await w.both()
    await a.called()
    await a.send(a.update(1.001))
    receipt = await a.receipt()
    assert receipt.reason == pb.REASON_NORM


async def test_the_same_update_twice_counts_once_with_the_same_receipt(world: MakeWorld) -> None:
    w = await world(parameters=LARGE)
    a, b = await w.both()
    call = await a.called()
    first = await submit(a, call)
    second = await submit(a, call)
    assert first == second
    assert first.outcome == pb.OUTCOME_ACCEPTED
    await submit(b, await b.called())
    await w.finish()
    counted = [row for row in w.outcomes() if row[1] == "folded"]
    assert sorted(counted) == [("a", "folded", None), ("b", "folded", None)]
    assert ("a", "duplicate", None) in w.outcomes()


async def test_another_body_under_the_same_key_is_refused(world: MakeWorld) -> None:
    w = await world(parameters=LARGE)
    a, _ = await w.both()
    call = await a.called()
    await submit(a, call)
    receipt = await submit(a, call, value=2.0)
    assert (receipt.outcome, receipt.reason) == (pb.OUTCOME_REFUSED, pb.REASON_OTHER_BODY)


async def test_a_late_update_is_recorded_and_not_folded(world: MakeWorld) -> None:
    w = await world(parameters=LARGE, clock="wall", rounds=2, goal=1, deadline_s=60.0)
    a, b = await w.both()
    call_a, call_b = await a.called(), await b.called()
    await submit(a, call_a)
    await w.until("round_committed", round=1)
    receipt = await submit(b, call_b)
    assert receipt.outcome == pb.OUTCOME_LATE
    await submit(b, await b.called())
    await w.finish()
    assert [row for row in w.outcomes() if row[0] == "b"] == [
        ("b", "late", "goal reached"),
        ("b", "folded", None),
    ]


# --- bulk transfer -------------------------------------------------------------------------------


async def submit(
    peer: Peer, call: pb.Call, value: float = 1.0, offset: int = 0, chunks: int | None = None
) -> pb.Receipt:
    """Upload an update from `offset`, `chunks` pieces of it."""
    update, body = peer.update(value, call.round, call.attempt)

    async def parts() -> AsyncIterator[pb.SubmitMessage]:
        yield pb.SubmitMessage(header=pb.SubmitHeader(update=update, offset=offset))
        starts = range(offset, len(body), CHUNK_BYTES)
        for start in starts[:chunks]:
            yield pb.SubmitMessage(chunk=body[start : start + CHUNK_BYTES])

    return await peer.stub.Submit(parts(), metadata=peer.metadata)


THREE_CHUNKS = 3 * CHUNK_BYTES // 4


async def test_a_broken_upload_goes_on_where_it_broke(world: MakeWorld) -> None:
    w = await world(parameters=THREE_CHUNKS)
    a, _ = await w.both()
    call = await a.called()
    broken = await submit(a, call, chunks=2)
    assert (broken.outcome, broken.offset) == (pb.OUTCOME_RESUME, 2 * CHUNK_BYTES)
    asked = await submit(a, call, offset=3 * CHUNK_BYTES, chunks=0)
    assert (asked.outcome, asked.offset) == (pb.OUTCOME_RESUME, 2 * CHUNK_BYTES)
    receipt = await submit(a, call, offset=asked.offset)
    assert receipt.outcome == pb.OUTCOME_ACCEPTED


async def test_a_download_starts_where_it_is_asked_to(world: MakeWorld) -> None:
    w = await world(parameters=THREE_CHUNKS)
    a, _ = await w.both()
    call = await a.called()
    request = pb.FetchRequest(version=call.base_version, offset=CHUNK_BYTES)
    pieces = [chunk.data async for chunk in a.stub.Fetch(request, metadata=a.metadata)]
    assert [len(piece) for piece in pieces] == [CHUNK_BYTES, CHUNK_BYTES]
    assert checksum(bytes(CHUNK_BYTES) + b"".join(pieces)) == call.model_checksum


async def test_a_device_whose_round_was_closed_before_its_model_came_goes_on(
    world: MakeWorld,
) -> None:
    w = await world(parameters=THREE_CHUNKS)
    link = ServerLink(f"127.0.0.1:{w.port}", FLEET.shown, WallClock(), LinkModel())
    await link.enroll([Identity("a", 10)], Fingerprint("test", "test", "cpu", 1))
    outdated = Call(Key("a", 1, 1), base_version=7, deadline_s=0.0, model_checksum=b"")
    assert await link.fetch(outdated, w.coordinator.schema.body_bytes) is None
    await link.close()


async def test_a_version_that_is_not_there_is_not_found(world: MakeWorld) -> None:
    w = await world()
    a, _ = await w.both()
    with pytest.raises(grpc.aio.AioRpcError, match="this server has version 0") as error:
        async for _ in a.stub.Fetch(pb.FetchRequest(version=7), metadata=a.metadata):
            pass
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "chunk", [bytes(CHUNK_BYTES + 4), bytes(6)], ids=["too long", "half a number"]
)
async def test_a_chunk_that_cannot_be_right_ends_the_upload(world: MakeWorld, chunk: bytes) -> None:
    w = await world(parameters=THREE_CHUNKS)
    a, _ = await w.both()
    call = await a.called()
    update, _ = a.update(round=call.round)
    parts = [
        pb.SubmitMessage(header=pb.SubmitHeader(update=update)),
        pb.SubmitMessage(chunk=chunk),
    ]
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await a.stub.Submit(iter(parts), metadata=a.metadata)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await submit(a, call)).outcome == pb.OUTCOME_ACCEPTED


async def test_an_upload_that_does_not_begin_with_a_header_is_refused(world: MakeWorld) -> None:
    w = await world()
    a, _ = await w.both()
    with pytest.raises(grpc.aio.AioRpcError, match="begins with a header") as error:
        await a.stub.Submit(iter([pb.SubmitMessage(chunk=b"1234")]), metadata=a.metadata)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_answer_without_meaning_ends_its_stream_and_no_other(world: MakeWorld) -> None:
    w = await world()
    a, b = await w.both()
    await a.send(a.update(), decision=pb.DECISION_UNSPECIFIED)
    with pytest.raises(grpc.aio.AioRpcError, match="has no meaning here") as error:
        await a.rest()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await finish_well(w, await w.attend("a"), b)


async def test_a_body_without_an_update_ends_its_stream_and_no_other(world: MakeWorld) -> None:
    w = await world()
    a, b = await w.both()
    await a.stream.write(pb.DeviceMessage(bodies=[bytes(16)]))
    with pytest.raises(grpc.aio.AioRpcError, match="0 updates in a message with 1 bodies") as error:
        await a.rest()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await finish_well(w, await w.attend("a"), b)


# --- coming back ---------------------------------------------------------------------------------


async def test_a_device_that_comes_back_is_called_again_and_its_old_stream_ends(
    world: MakeWorld,
) -> None:
    w = await world()
    a, b = await w.both()
    assert (await a.called()).attempt == 1
    again = await w.attend("a")
    assert (await again.called()).attempt == 2
    with pytest.raises(grpc.aio.AioRpcError):
        await w.stub().Fetch(pb.FetchRequest(), metadata=a.metadata).read()
    await again.send(again.update(attempt=2))
    await b.called()
    await b.send(b.update())
    assert (await w.finish())[0] == "completed"
    assert len(w.outcomes()) == 2


async def test_the_operator_sees_and_stops_the_run(world: MakeWorld) -> None:
    w = await world(rounds=5)
    a, _ = await w.both()
    await a.called()
    watching = w.operator().Watch(operator_pb2.WatchRequest(), metadata=OPERATOR_METADATA)
    status = await w.operator().Status(operator_pb2.StatusRequest(), metadata=OPERATOR_METADATA)
    assert (status.round, status.rounds, status.phase) == (1, 5, "collecting")
    assert (status.present, status.population, status.called) == (2, 2, 2)
    await w.operator().Stop(operator_pb2.StopRequest(), metadata=OPERATOR_METADATA)
    assert (await w.finish())[0] == "stopped"
    goodbye = await a.read()
    assert goodbye.goodbye.status == "stopped"
    watching.cancel()


async def test_a_lockstep_round_without_a_word_fails_after_the_stall(world: MakeWorld) -> None:
    clock = ManualClock()
    w = await world(stall_s=60.0, time=clock)
    await w.both()
    await w.until("round_opened")
    assert w.running is not None
    clock.advance(60.0)
    with pytest.raises(RunFailed, match=r"round 1 stalled: no device answered for 60 s"):
        await asyncio.shield(w.running)


async def test_a_lockstep_round_without_a_word_says_for_whom_it_waits(world: MakeWorld) -> None:
    clock = ManualClock()
    w = await world(stall_s=60.0, time=clock)
    await w.both()
    await w.until("round_opened")
    clock.advance(5.0)
    told = await w.until("waiting")
    assert (told["round"], told["clients"], told["number"]) == (1, ["a", "b"], 2)
    clock.advance(5.0)
    clock.advance(5.0)
    assert [event["event"] for event in w.events].count("waiting") == 1


async def test_a_server_that_was_stopped_for_a_while_does_not_say_that_devices_are_silent(
    world: MakeWorld,
) -> None:
    """What they have sent meanwhile lies in its sockets."""
    clock = ManualClock()
    w = await world(stall_s=60.0, time=clock)
    looking = asyncio.create_task(w.coordinator.patience.watch())
    await w.both()
    await w.until("round_opened")
    clock.advance(30.0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert "waiting" not in [event["event"] for event in w.events]
    for _ in range(10):  # a server that runs looks at its clock more often than that
        clock.advance(0.5)
        for _ in range(10):
            await asyncio.sleep(0)
    await w.until("waiting")
    looking.cancel()


async def test_a_fleet_that_does_not_assemble_fails_after_the_stall(world: MakeWorld) -> None:
    w = await world(stall_s=0.05)
    await w.attend("a")
    assert w.running is not None
    with pytest.raises(RunFailed, match=r"[01] of 2 devices came within 0\.05 s"):
        await asyncio.wait_for(asyncio.shield(w.running), 60)


async def test_a_device_that_is_silent_for_two_heartbeats_has_left(world: MakeWorld) -> None:
    w = await world(heartbeat_s=0.02)
    a, _ = await w.both()
    left = await w.until("left", client="a")
    assert left["why"] == "it was silent for 0.04 s"
    await a.rest()  # its stream ends, and it may come back
    assert await a.stream.code() is grpc.StatusCode.OK


async def test_a_heartbeat_may_wait_in_the_queue_of_a_shared_link(world: MakeWorld) -> None:
    w = await world(heartbeat_s=0.02, shared=SharedLine(up_bps=1e6, queue_up_bytes=12_500))
    await w.both()
    left = await w.until("left", client="a")
    assert left["why"] == "it was silent for 0.24 s"
