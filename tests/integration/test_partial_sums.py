"""Processes that hold the updates of their devices back: what the server asks of them, and what it
makes of sums that are late, damaged, impossible or missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

from muster.client.connection.transport_errors import error_of
from muster.common.errors import RemoteProtocolError, RunFailed
from muster.common.exact_sum import ExactSum
from muster.common.partial_sums import encode_partial_sum, partial_sum_lengths
from muster.common.secure.steps import KEYS_BYTES
from muster.common.testing import ManualClock
from muster.v1 import fleet_pb2 as pb
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer

PARAMETERS = 4


def held(client: str, call: pb.Call, value: float, **changes: Any) -> pb.Answer:
    """An answer with an update of equal entries, which its process holds back."""
    body = np.full(PARAMETERS, value, "<f4")
    update = pb.Update(
        client=client,
        round=call.round,
        attempt=call.attempt,
        examples=10,
        checksum=checksum(body.tobytes()),
        length=body.nbytes,
        loss=0.5,
        held=pb.HeldUpdate(largest=abs(value), squared_norm=PARAMETERS * value**2),
    )
    for name, changed in changes.items():
        setattr(update.held, name, changed)
    return pb.Answer(
        client=client,
        round=call.round,
        attempt=call.attempt,
        decision=pb.DECISION_ACCEPT,
        update=update,
    )


async def answer(peer: Peer, values: dict[str, float], **changes: Any) -> None:
    """Answer the calls of a message, each with a held update."""
    while not (message := await peer.read()).calls:
        pass
    answers = [held(c.client, c, values[c.client], **changes) for c in message.calls]
    await peer.stream.write(pb.DeviceMessage(answers=answers))


async def asked(peer: Peer) -> pb.ServerMessage:
    """The server's next request for a sum."""
    while not (message := await peer.read()).HasField("sum"):
        pass
    return message


def sum_for(request: pb.ServerMessage, values: dict[str, float]) -> bytes:
    """What an honest process sends for a request."""
    total = ExactSum(PARAMETERS)
    for call, weight in zip(request.calls, request.sum.weights, strict=True):
        if call.client in values:
            total.add(np.full(PARAMETERS, values[call.client], np.float32), weight)
    return bytes(encode_partial_sum(total))


async def send(
    peer: Peer, number: int, body: bytes, missing: Sequence[str] = (), **header: Any
) -> pb.SumReceipt:
    """Send a sum, or the part of it that begins at `offset`."""
    facts = {"number": number, "length": len(body), "checksum": checksum(body), **header}
    parts = [pb.SumMessage(header=pb.SumHeader(missing=missing, **facts))]
    parts += [pb.SumMessage(chunk=body)] if body else []
    receipt: pb.SumReceipt = await peer.stub.SubmitSum(iter(parts), metadata=peer.metadata)
    return receipt


async def send_sum(peer: Peer, number: int, body: bytes, missing: Sequence[str] = ()) -> bool:
    """Send a whole sum; return whether the server asks for it no longer."""
    return (await send(peer, number, body, missing)).done


async def refused(sending: Any) -> Exception:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await sending
    return error_of(caught.value)


VALUES = {"a": 1.0, "b": 3.0}
ONES = {"a": 1.0, "b": 1.0}


async def ready(world: MakeWorld, **settings: Any) -> tuple[World, Peer, pb.ServerMessage]:
    """A server that has asked a process of two devices for their sum."""
    w = await world(partial_sums=True, **settings)
    peer = await w.attend("a", "b")
    await answer(peer, VALUES)
    return w, peer, await asked(peer)


def model_of(w: World) -> list[float]:
    return [float(entry) for entry in w.coordinator.versions.model]


async def test_the_model_is_that_of_the_updates_in_the_sum(world: MakeWorld) -> None:
    w, peer, request = await ready(world)
    assert list(request.sum.weights) == [10, 10]
    assert (request.sum.begins, request.sum.ends) == (True, True)
    assert await send_sum(peer, request.sum.number, sum_for(request, VALUES))
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [2.0] * PARAMETERS
    assert w.outcomes() == [("a", "folded", None), ("b", "folded", None)]


async def test_updates_and_sums_are_added_to_each_other(world: MakeWorld) -> None:
    w = await world(partial_sums=True, clients="abc")
    pack, alone = await w.attend("a", "b"), await w.attend("c")
    await alone.send(alone.update(8.0, attempt=(await alone.called()).attempt))
    await answer(pack, VALUES)
    request = await asked(pack)
    assert await send_sum(pack, request.sum.number, sum_for(request, VALUES))
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [4.0] * PARAMETERS


async def test_the_server_asks_a_process_that_comes_back_again(world: MakeWorld) -> None:
    w, _, request = await ready(world)
    again = await w.attend("a", "b")
    repeated = await asked(again)
    assert repeated.sum == request.sum
    assert repeated.model, "the process may have to train again"
    assert [call.client for call in repeated.calls] == ["a", "b"]
    assert await send_sum(again, repeated.sum.number, sum_for(repeated, VALUES))
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [2.0] * PARAMETERS


async def test_a_damaged_sum_is_sent_again(world: MakeWorld) -> None:
    w, peer, request = await ready(world)
    right = sum_for(request, VALUES)
    damaged = bytes([right[0] ^ 1]) + right[1:]
    assert (await send(peer, request.sum.number, damaged, checksum=checksum(right))).damaged
    assert await send_sum(peer, request.sum.number, right)
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [2.0] * PARAMETERS


async def test_a_sum_that_nobody_asks_for_changes_nothing(world: MakeWorld) -> None:
    w, peer, request = await ready(world)
    right = sum_for(request, VALUES)
    assert await send_sum(peer, request.sum.number + 1, right)
    assert await send_sum(peer, request.sum.number, right)
    assert await send_sum(peer, request.sum.number, right)  # once more
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [2.0] * PARAMETERS


async def test_impossible_sums_are_refused_and_the_right_one_is_taken_after_them(
    world: MakeWorld,
) -> None:
    w, peer, request = await ready(world)
    number, right = request.sum.number, sum_for(request, VALUES)
    short, long = partial_sum_lengths(PARAMETERS)
    too_large = sum_for(request, {"a": 1.0, "b": 3.5})
    for body, missing, expected in (
        (right + b"0000", (), f"expected {short} or {long}"),
        (b"", (), f"expected {short} or {long}"),
        (right, ("a", "b"), "expected 0"),
        (right, ("c",), "expected names of devices that are in it"),
        (right, ("a", "a"), "expected names of devices that are in it"),
        (right, ("b",), "an entry of 40; the updates in it make at most 10"),
        (too_large, (), "an entry of 45; the updates in it make at most 40"),
    ):
        error = await refused(send_sum(peer, number, body, missing))
        assert isinstance(error, RemoteProtocolError)
        assert expected in str(error)
    assert await send_sum(peer, number, right)
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [2.0] * PARAMETERS


async def test_a_sum_of_the_devices_of_another_process_is_refused(world: MakeWorld) -> None:
    w = await world(partial_sums=True, clients="abc")
    pack, other = await w.attend("a", "b"), await w.attend("c")
    await answer(pack, VALUES)
    await answer(other, {"c": 8.0})
    request, own = await asked(pack), await asked(other)
    error = await refused(send_sum(other, request.sum.number, sum_for(request, VALUES)))
    assert "not that of the devices of this session" in str(error)
    assert await send_sum(pack, request.sum.number, sum_for(request, VALUES))
    assert await send_sum(other, own.sum.number, sum_for(own, {"c": 8.0}))
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [4.0] * PARAMETERS


async def test_a_sum_longer_than_the_updates_in_it_is_refused(world: MakeWorld) -> None:
    w = await world(partial_sums=True)
    peer = await w.attend("a", "b")
    await answer(peer, {"a": 1.0, "b": 1.0}, squared_norm=1.0)  # each has one entry that is not 0
    request = await asked(peer)
    error = await refused(
        send_sum(peer, request.sum.number, sum_for(request, {"a": 1.0, "b": 1.0}))
    )
    assert "a norm of 40; the updates in it make at most 20" in str(error)


async def test_small_weights_do_not_hide_a_sum_that_is_too_large(world: MakeWorld) -> None:
    w = await world(partial_sums=True, privacy={"clip": 0.001, "noise": 0.0})
    peer = await w.attend("a", "b")
    await answer(peer, {"a": 0.001, "b": 0.001})
    request = await asked(peer)
    error = await refused(
        send_sum(peer, request.sum.number, sum_for(request, {"a": 1.0, "b": 1.0}))
    )
    assert "the updates in it make at most" in str(error)


async def test_a_sum_that_broke_off_resumes(world: MakeWorld) -> None:
    w, peer, request = await ready(world)
    number, right = request.sum.number, sum_for(request, VALUES)
    whole: dict[str, Any] = {"length": len(right), "checksum": checksum(right)}
    assert (await send(peer, number, right[:20], **whole)).offset == 20
    assert (await send(peer, number, b"", offset=(1 << 63) - 1, **whole)).offset == 20
    assert (await send(peer, number, right[20:], offset=20, **whole)).done
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [2.0] * PARAMETERS


async def test_a_process_whose_sum_is_always_damaged_is_refused(world: MakeWorld) -> None:
    clock = ManualClock()
    w, peer, request = await ready(world, time=clock, stall_s=100.0)
    number, right = request.sum.number, sum_for(request, VALUES)
    damaged = bytes([right[0] ^ 1]) + right[1:]
    for _ in range(4):
        clock.advance(20.0)  # nothing of it is progress after the first time
        assert (await send(peer, number, damaged, checksum=checksum(right))).damaged
    error = await refused(send(peer, number, damaged, checksum=checksum(right)))
    assert "came 5 times with another checksum" in str(error)
    clock.advance(40.0)
    assert w.running is not None
    with pytest.raises(RunFailed, match="lacks the sum"):
        await w.running


async def test_a_process_may_hold_updates_back_only_where_the_scenario_says_so(
    world: MakeWorld,
) -> None:
    w = await world()
    peer = await w.attend("a", "b")
    await answer(peer, VALUES)
    with pytest.raises(grpc.aio.AioRpcError, match="partial_sums is not set for the group g"):
        await peer.rest()


@pytest.mark.parametrize(
    "stated",
    [
        {"largest": 1e6, "squared_norm": 0.0},
        {"largest": 0.0, "squared_norm": 1.0},
        {"largest": 1.0, "squared_norm": 4.1},
        {"largest": 1.7e307, "squared_norm": 1.7e307},
    ],
    ids=str,
)
async def test_a_held_update_whose_numbers_contradict_each_other_is_refused(
    world: MakeWorld, stated: dict[str, float]
) -> None:
    w = await world(partial_sums=True, clients="a")
    peer = await w.attend("a")
    await answer(peer, {"a": 1.0}, **stated)
    assert (await peer.receipt()).reason == pb.REASON_MALFORMED
    assert (await w.finish())[0] == "completed"


async def test_a_squared_norm_that_is_no_number_is_refused(world: MakeWorld) -> None:
    w = await world(partial_sums=True, clients="a", privacy={"clip": 1.0, "noise": 1.0})
    peer = await w.attend("a")
    await answer(peer, {"a": 1.0}, squared_norm=float("nan"))
    assert (await peer.receipt()).reason == pb.REASON_NOT_FINITE


@pytest.mark.parametrize("largest", [float("nan"), float("inf")])
async def test_a_held_update_that_is_not_finite_is_refused(
    world: MakeWorld, largest: float
) -> None:
    w = await world(partial_sums=True, clients="a")
    peer = await w.attend("a")
    await answer(peer, {"a": 1.0}, largest=largest)
    assert (await peer.receipt()).reason == pb.REASON_NOT_FINITE
    assert (await w.finish())[0] == "completed"
    assert w.outcomes() == [("a", "refused", "not finite")]


async def test_the_norm_of_a_held_update_is_guarded(world: MakeWorld) -> None:
    w = await world(partial_sums=True, clients="a", guard={"max_norm": 1.9})
    peer = await w.attend("a")
    await answer(peer, {"a": 1.0})  # its norm is 2
    assert (await peer.receipt()).reason == pb.REASON_NORM
    assert (await w.finish())[0] == "completed"


# --- sums that do not come -----------------------------------------------------------------------


async def test_updates_whose_sum_is_missing_do_not_count_on_clocks_that_run(
    world: MakeWorld,
) -> None:
    w = await world(partial_sums=True, clients="abc", clock="wall", deadline_s=1000.0)
    pack, other = await w.attend("a", "b"), await w.attend("c")
    await answer(pack, VALUES)
    await answer(other, {"c": 8.0})
    request, own = await asked(pack), await asked(other)
    assert await send_sum(pack, request.sum.number, b"", missing=["a", "b"])
    assert await send_sum(other, own.sum.number, sum_for(own, {"c": 8.0}))
    again = await asked(other)  # the weights of the others may have changed
    assert await send_sum(other, again.sum.number, sum_for(again, {"c": 8.0}))
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [8.0] * PARAMETERS
    assert sorted(w.outcomes()) == [
        ("a", "dropped", "sum missing"),
        ("b", "dropped", "sum missing"),
        ("c", "folded", None),
    ]


async def test_a_missing_sum_fails_a_run_in_lockstep(world: MakeWorld) -> None:
    w, peer, request = await ready(world)
    rest = sum_for(request, {"a": 1.0})
    assert await send_sum(peer, request.sum.number, rest, missing=["b"])
    assert w.running is not None
    with pytest.raises(RunFailed, match=r"lacks the sum with the update of b \(1 in all\)"):
        await w.running


async def test_a_run_in_lockstep_fails_when_a_sum_stalls(world: MakeWorld) -> None:
    clock = ManualClock()
    w, _, _ = await ready(world, time=clock, stall_s=100.0)
    clock.advance(100.0)
    assert w.running is not None
    with pytest.raises(RunFailed, match=r"sent nothing for 100 s \(server\.stall_s\)"):
        await w.running


async def test_updates_whose_sum_does_not_come_in_time_do_not_count(world: MakeWorld) -> None:
    clock = ManualClock()
    w, _, _ = await ready(world, time=clock, clock="wall", deadline_s=5.0, heartbeat_s=1000.0)
    clock.advance(5.0)
    assert (await w.finish())[0] == "completed"
    assert w.outcomes() == [("a", "dropped", "sum missing"), ("b", "dropped", "sum missing")]


async def test_weights_that_are_noted_in_the_ledger_are_noted_once(world: MakeWorld) -> None:
    w = await world(
        partial_sums=True, clients="abc", clock="wall", deadline_s=1000.0, aggregator="agnostic",
        privacy=None,
    )  # fmt: skip
    pack, other = await w.attend("a", "b"), await w.attend("c")
    await answer(pack, VALUES)
    await answer(other, {"c": 8.0})
    request, own = await asked(pack), await asked(other)
    assert await send_sum(pack, request.sum.number, b"", missing=["a", "b"])
    assert await send_sum(other, own.sum.number, sum_for(own, {"c": 8.0}))
    again = await asked(other)
    assert await send_sum(other, again.sum.number, sum_for(again, {"c": 8.0}))
    assert (await w.finish())[0] == "completed"


async def test_processes_that_withhold_one_after_the_other_do_not_hold_a_round_up(
    world: MakeWorld,
) -> None:
    w = await world(partial_sums=True, clients="abcd", clock="wall", deadline_s=1000.0)
    peers = {client: await w.attend(client) for client in "abcd"}
    for client, peer in peers.items():
        await answer(peer, {client: 1.0})
    for withholding in "abc":
        for client in [c for c in "abcd" if c >= withholding]:
            request = await asked(peers[client])
            if client == withholding:
                await send_sum(peers[client], request.sum.number, b"", missing=[client])
            else:
                body = sum_for(request, {client: 1.0})
                assert await send_sum(peers[client], request.sum.number, body)
    assert (await w.finish())[0] == "completed"
    assert {reason for _, _, reason in w.outcomes()} == {"sum missing"}


async def test_a_run_that_is_to_stop_does_not_wait_for_a_sum(world: MakeWorld) -> None:
    w, _, _ = await ready(world)
    w.coordinator.stop("stopped", "enough")
    assert await w.finish() == ("stopped", "enough")
    assert w.outcomes() == []


async def test_what_comes_of_a_sum_after_its_round_is_not_taken(world: MakeWorld) -> None:
    clock = ManualClock()
    w, peer, request = await ready(
        world, time=clock, clock="wall", deadline_s=5.0, heartbeat_s=1000.0, rounds=2
    )
    right = sum_for(request, VALUES)
    header = pb.SumHeader(number=request.sum.number, length=len(right), checksum=checksum(right))
    upload = peer.stub.SubmitSum(metadata=peer.metadata)
    await upload.write(pb.SumMessage(header=header))
    await upload.write(pb.SumMessage(chunk=right[:20]))
    await upload.initial_metadata()
    clock.advance(5.0)
    await w.until("round_opened", round=2)
    await upload.write(pb.SumMessage(chunk=right[20:40]))
    assert (await upload).done


async def test_a_run_in_lockstep_goes_on_without_a_revoked_process(world: MakeWorld) -> None:
    w, _, _ = await ready(world)
    w.coordinator.revoked("fleet", ["a", "b"])
    assert (await w.finish())[0] == "completed"
    assert w.outcomes() == [("a", "dropped", "sum missing"), ("b", "dropped", "sum missing")]


async def test_a_process_that_is_revoked_before_it_is_asked_is_not_waited_for(
    world: MakeWorld,
) -> None:
    w = await world(partial_sums=True, clients="abc")
    pack, alone = await w.attend("a", "b"), await w.attend("c")
    await answer(pack, VALUES)
    await w.until("received", client="b")
    w.coordinator.revoked("fleet", ["a", "b"])
    await alone.send(alone.update(8.0, attempt=(await alone.called()).attempt))
    assert (await w.finish())[0] == "completed"
    assert model_of(w) == [8.0] * PARAMETERS


# --- replies to the steps of secure sums, which come in messages of Attend -----------------------

KEYS = bytes(KEYS_BYTES)


def reply(number: int, body: bytes, /, **changed: Any) -> pb.DeviceMessage:
    stated = {"number": number, "length": len(body), "checksum": checksum(body), **changed}
    return pb.DeviceMessage(reply=pb.SumReply(header=pb.SumHeader(**stated), body=body))


async def asked_for_keys(world: MakeWorld) -> tuple[World, Peer, int]:
    """A server that has asked three devices for their keys; the first of them, and the number of
    its request."""
    w = await world(clients="abc", partial_sums=True, minimum=3, secure={})
    peers = [await w.attend(client) for client in "abc"]
    for peer in peers:
        await answer(peer, dict.fromkeys("abc", 1.0))
    return w, peers[0], (await asked(peers[0])).sum.number


async def ended(peer: Peer) -> None:
    while True:
        await peer.read()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"checksum": bytes(16)}, "64 bytes in reply to 1 are not those"),
        ({"body": KEYS[1:]}, "63 bytes in reply to 1 are not those"),
        ({"length": 65}, "a sum of 65 bytes; expected 64"),
        ({"number": 2}, "not that of the devices of this session"),
        ({"missing": ["b"]}, "names of devices that are in it"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(*value),
)
async def test_a_wrong_reply_ends_the_stream(
    world: MakeWorld, changed: dict[str, Any], why: str
) -> None:
    _, peer, number = await asked_for_keys(world)
    message = reply(number, KEYS, **{k: v for k, v in changed.items() if k != "body"})
    message.reply.body = changed.get("body", KEYS)
    await peer.stream.write(message)
    assert why in str(await refused(ended(peer)))


async def test_a_reply_that_nobody_waits_for_is_passed_over(world: MakeWorld) -> None:
    w, peer, number = await asked_for_keys(world)
    await peer.stream.write(reply(number + 1000, KEYS))
    for _ in range(2):  # the second one comes too late
        await peer.stream.write(reply(number, KEYS))
    peers = [await w.attend(client) for client in "bc"]  # they are asked again
    for other in peers:
        await other.stream.write(reply((await asked(other)).sum.number, KEYS))
    step = await w.until("secure_step", step="keys", answered=3)
    assert step["asked"] == 3


async def test_a_sum_is_no_reply(world: MakeWorld) -> None:
    _, peer, request = await ready(world)
    right = sum_for(request, VALUES)
    await peer.stream.write(reply(request.sum.number, right))
    assert "are not those that were asked for" in str(await refused(ended(peer)))
