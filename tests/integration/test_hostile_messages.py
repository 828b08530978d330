"""Messages that no device of muster sends: they end at their own session."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.integration.conftest import FLEET

from muster.common.clock import WallClock
from muster.common.exchange import Call, Key
from muster.v1 import fleet_pb2 as pb
from muster.wire import PROTOCOL_VERSION, TOKEN
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

    from muster.chaos.peer import Peer

LARGE = 1 << 16
"""Parameters of a model that does not travel inline."""


async def refused(ended: Awaitable[Any], why: str) -> None:
    """The server has ended a call because of what it was sent."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await ended
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert why in (error.value.details() or "")


async def finish_with_two(w: World, *peers: Peer) -> None:
    for peer in peers:
        call = await peer.called()
        await peer.send(peer.update(attempt=call.attempt))
    assert (await w.finish())[0] == "completed"
    folded = [client for client, outcome, _ in w.outcomes() if outcome == "folded"]
    assert sorted(folded) == ["a", "b"]


@pytest.mark.parametrize("field", ["examples", "length"])
@pytest.mark.parametrize("number", [2**40 + 1, 2**63, 2**64 - 1])
async def test_an_impossible_number_does_not_reach_the_account(
    world: MakeWorld, field: str, number: int
) -> None:
    w = await world()
    a, b = await w.both()
    changes: dict[str, Any] = {field: number}
    await a.send(a.update(**changes))
    await refused(a.rest(), f"{field} is {number}; expected at most")
    update, _ = a.update(**changes)
    parts = iter([pb.SubmitMessage(header=pb.SubmitHeader(update=update))])
    await refused(a.stub.Submit(parts, metadata=a.metadata), f"{field} is {number}")
    await finish_with_two(w, await w.attend("a"), b)
    assert len(w.outcomes()) == 2


async def test_an_update_under_another_name_is_in_nobody_elses_account(world: MakeWorld) -> None:
    w = await world()
    a, b = await w.both()
    update, body = b.update()
    parts = [pb.SubmitMessage(header=pb.SubmitHeader(update=update)), pb.SubmitMessage(chunk=body)]
    receipt = await a.stub.Submit(iter(parts), metadata=a.metadata)
    assert (receipt.outcome, receipt.reason) == (pb.OUTCOME_REFUSED, pb.REASON_UNKNOWN_CLIENT)
    refusals = [event for event in w.events if event["event"] == "refused"]
    assert [(event["client"], event["reason"]) for event in refusals] == [("a", "unknown client")]
    await finish_with_two(w, a, b)
    assert len(w.outcomes()) == 2


async def test_a_message_that_is_wrong_in_its_second_half_changes_nothing(world: MakeWorld) -> None:
    w = await world(clients="abc")
    pair, c = await w.attend("a", "b"), await w.attend("c")
    await c.called()
    await c.send(c.update())
    await w.until("received", client="c")
    declined: dict[str, Any] = {"round": 1, "attempt": 1, "decision": pb.DECISION_DECLINE}
    wrong = [pb.Answer(client="b", **declined), pb.Answer(client="a", **declined, x=[1.0])]
    await pair.stream.write(pb.DeviceMessage(answers=wrong))
    await refused(pair.rest(), "1 covariates X of a; expected 0")
    again = await w.attend("a", "b")
    assert len((await called_together(again)).calls) == 2, "neither has spoken"
    declined["attempt"] = 2
    right = [pb.Answer(client=client, **declined) for client in "ab"]
    await again.stream.write(pb.DeviceMessage(answers=right))
    assert (await w.finish())[0] == "completed"


async def called_together(peer: Peer) -> pb.ServerMessage:
    while not (message := await peer.read()).calls:
        pass
    return message


async def test_updates_that_do_not_count_are_entered_a_hundred_times_at_most(
    world: MakeWorld,
) -> None:
    w = await world()
    a, b = await w.both()
    await a.called()
    for _ in range(101):
        await a.send(a.update(examples=9, checksum=bytes(16)))
    await refused(a.rest(), "a sent 101 updates that do not count")
    await finish_with_two(w, await w.attend("a"), b)
    assert Counter(w.outcomes())[("a", "refused", "checksum")] == 100


@pytest.mark.parametrize("inline", [True, False])
async def test_a_refusal_that_is_one_too_many_closes_its_round_all_the_same(
    world: MakeWorld, inline: bool
) -> None:
    w = await world()
    a, b = await w.both()
    await b.called()
    await b.send(b.update())
    await a.called()
    for _ in range(100):
        await a.send(a.update(examples=9, checksum=bytes(16)))
    update, body = a.update(math.nan)
    if inline:
        await a.send((update, body))
        await refused(a.rest(), "a sent 101 updates that do not count")
    else:
        while [event["event"] for event in w.events].count("refused") < 100:
            await a.read()
        parts = [pb.SubmitMessage(header=pb.SubmitHeader(update=update))]
        parts.append(pb.SubmitMessage(chunk=body))
        call = a.stub.Submit(iter(parts), metadata=a.metadata)
        await refused(call, "a sent 101 updates that do not count")
    assert (await w.finish())[0] == "completed"
    assert ("b", "folded", None) in w.outcomes()


async def test_a_device_keeps_one_unfinished_body_on_the_server(world: MakeWorld) -> None:
    w = await world(parameters=LARGE)
    a, _ = await w.both()
    await a.called()

    held = set()
    for value in range(20):
        body = bytes([value]) * 4 * LARGE
        update, _ = a.update(checksum=checksum(body))
        first = pb.SubmitMessage(chunk=body[: 1 << 12])
        parts = [pb.SubmitMessage(header=pb.SubmitHeader(update=update)), first]
        receipt = await a.stub.Submit(iter(parts), metadata=a.metadata)
        assert (receipt.outcome, receipt.offset) == (pb.OUTCOME_RESUME, 1 << 12)
        held.add(open_files(w.folder / "models"))
    assert held == {1}


def open_files(folder: Path) -> int:
    """Files below `folder` that this process has open, with or without a name."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder))
        except FileNotFoundError:  # it was that of the listing
            continue
    return found


async def test_an_answer_that_is_repeated_is_told_once_and_is_no_progress(world: MakeWorld) -> None:
    w = await world(parameters=LARGE)
    a, _ = await w.both()
    await a.called()
    accept = pb.Answer(client="a", round=1, attempt=1, decision=pb.DECISION_ACCEPT)
    await a.stream.write(pb.DeviceMessage(answers=[accept]))
    await w.until("answered", client="a")
    progress_at = w.coordinator.patience.progress_at
    for _ in range(3):
        await a.stream.write(pb.DeviceMessage(answers=[accept]))
    seen = pb.Observation(client="a", state=pb.DeviceState(network="wifi"))
    await a.stream.write(pb.DeviceMessage(heartbeat=pb.Heartbeat(devices=[seen])))
    clock = WallClock()
    while w.coordinator.fleet.devices["a"].seen is None:  # it has heard what came before
        await clock.sleep_until(clock.monotonic() + 0.002)
    assert w.coordinator.patience.progress_at == progress_at
    assert [event["event"] for event in w.events].count("answered") == 1


async def test_a_message_that_cannot_be_encoded_ends_one_call_with_one_line(
    world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    w = await world()
    a, b = await w.both()
    (pack,) = w.coordinator.fleet.packs_of("a")
    pack.send(w.coordinator.committed, [Call(Key("a", 1, 1), 0, 0.0, bytes(16), step=2**32)])
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await a.rest()
    assert error.value.code() is grpc.StatusCode.INTERNAL
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert line.getMessage().startswith("a message to devices cannot be encoded: ")
    assert line.exc_info is None
    await finish_with_two(w, await w.attend("a"), b)


# --- enrolling -----------------------------------------------------------------------------------


async def enroll(w: World, *devices: pb.Identity, **fingerprint: Any) -> pb.EnrollReply:
    request = pb.EnrollRequest(
        protocol_version=PROTOCOL_VERSION,
        devices=devices,
        fingerprint=pb.Fingerprint(**fingerprint),
    )
    return await w.stub().Enroll(request, metadata=((TOKEN, FLEET.shown),))


def identity(client: str = "a", **fields: Any) -> pb.Identity:
    return pb.Identity(**{"client": client, "examples": 10, "capacity": 1.0, **fields})


@pytest.mark.parametrize(
    ("devices", "detail"),
    [
        ([identity(), identity()], "'a' is named 2 times; expected every device once"),
        ([identity(z={"age": 1.0})], "the covariate Z 'age'; the scenario has none"),
        ([identity(client="x" * 9000)], f"'{'x' * 200}' is not one of the 2 devices"),
    ],
    ids=["twice", "unknown covariate", "a long name"],
)
async def test_devices_that_cannot_be_those_of_the_scenario_are_refused(
    world: MakeWorld, devices: list[pb.Identity], detail: str
) -> None:
    w = await world()
    reply = await enroll(w, *devices)
    assert detail in reply.refusal.detail
    assert len(reply.refusal.detail) < 400


async def test_a_process_with_devices_of_two_groups_is_refused(world: MakeWorld) -> None:
    w = await world()
    w.coordinator.fleet.devices["b"].group = "other"
    reply = await enroll(w, identity("a"), identity("b"))
    assert "devices of the groups g, other in one process" in reply.refusal.detail


async def test_a_fingerprint_that_is_no_fingerprint_is_refused(world: MakeWorld) -> None:
    w = await world()
    with pytest.raises(grpc.aio.AioRpcError, match="length of torch is 5000") as error:
        await enroll(w, identity(), torch="x" * 5000)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
