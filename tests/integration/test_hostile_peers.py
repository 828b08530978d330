"""Hostile peers of every kind attack a server, and two devices run their rounds undisturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from tests.integration.conftest import FLEET

from muster.client.link import ServerLink
from muster.common.clock import WallClock
from muster.common.exchange import Answer, Decision, Fingerprint, Identity, Outcome, Update
from muster.common.lines import LinkModel
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES, TOKEN
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, Peer, World

PARAMETERS = 2 * CHUNK_BYTES // 4
ROUNDS = 5
AT_ONCE = 8
"""Calls that a hostile peer has open at the same time."""


async def device(w: World, client: str, struck: Collection[asyncio.Event]) -> None:
    """A device that does as it should, with the client's own link, until the goodbye. It is there
    for the last round when all attackers have struck."""
    clock = WallClock()
    link = ServerLink(f"127.0.0.1:{w.port}", FLEET.shown, clock, LinkModel())
    await link.enroll([Identity(client, 10)], Fingerprint("test", "test", "cpu", 1))
    attendance = link.attend()
    while (message := await attendance.read()).goodbye is None:
        for call in message.calls:
            if call.key.round == ROUNDS:
                await asyncio.gather(*(attack.wait() for attack in struck))
            fetched = await link.fetch(call, w.coordinator.schema.body_bytes)
            assert fetched is not None
            model = np.frombuffer(fetched[0], "<f4")
            body = (ord(client) - model / 2).astype("<f4").tobytes()
            await attendance.answer([(Answer(call.key, Decision.ACCEPT), b"")])
            update = Update(call.key, 10, checksum(body), len(body), 0.0, 0.0, 0.5)
            receipt = await link.submit(update, body)
            assert receipt.outcome is Outcome.ACCEPTED
    await attendance.leave()
    await link.close()


# --- hostile peers -------------------------------------------------------------------------------


async def half_open_uploads(
    w: World, peer: Peer, call: pb.Call
) -> list[grpc.aio.StreamUnaryCall[pb.SubmitMessage, pb.Receipt]]:
    """Send headers, and nothing after them."""
    calls = []
    for value in range(AT_ONCE):
        update, _ = peer.update(value, call.round, call.attempt)
        submit = peer.stub.Submit(metadata=peer.metadata)
        await submit.write(pb.SubmitMessage(header=pb.SubmitHeader(update=update)))
        calls.append(submit)
    return calls


async def unread_downloads(
    w: World, peer: Peer, call: pb.Call
) -> list[grpc.aio.UnaryStreamCall[pb.FetchRequest, pb.ModelChunk]]:
    """Ask for models, and read nothing of them."""
    request = pb.FetchRequest(version=call.base_version)
    calls = [peer.stub.Fetch(request, metadata=peer.metadata) for _ in range(AT_ONCE)]
    await calls[-1].initial_metadata()
    return calls


async def impossible_numbers(w: World, peer: Peer, call: pb.Call) -> None:
    """Refused updates with numbers that a ledger cannot hold."""
    await peer.send(peer.update(examples=2**63, length=2**64 - 1))
    await peer.rest()


async def other_names(w: World, peer: Peer, call: pb.Call) -> None:
    """Updates, answers and observations in the name of the others."""
    for client in "ab":
        update, _ = peer.update(round=call.round, client=client)
        answer = pb.Answer(
            client=client,
            round=update.round,
            attempt=1,
            decision=pb.DECISION_ACCEPT,
            update=update,
        )
        seen = pb.Observation(client=client, state=pb.DeviceState(network="wifi"))
        heartbeat = pb.Heartbeat(devices=[seen])
        await peer.stream.write(
            pb.DeviceMessage(bodies=[b""], answers=[answer], heartbeat=heartbeat)
        )
        parts = [pb.SubmitMessage(header=pb.SubmitHeader(update=update))]
        await peer.stub.Submit(iter(parts), metadata=peer.metadata)


async def refusals_without_end(w: World, peer: Peer, call: pb.Call) -> None:
    """The same refused update again and again."""
    for _ in range(200):
        await peer.send(peer.update(length=12))
    await peer.rest()


async def body_after_body(w: World, peer: Peer, call: pb.Call) -> None:
    """Beginnings of many updates."""
    for value in range(3 * AT_ONCE):
        update, body = peer.update(value, call.round, call.attempt)
        parts = [pb.SubmitMessage(header=pb.SubmitHeader(update=update))]
        parts.append(pb.SubmitMessage(chunk=body[:4096]))
        await peer.stub.Submit(iter(parts), metadata=peer.metadata)


async def garbage(w: World, peer: Peer, call: pb.Call) -> None:
    """Messages that are none."""
    stream = peer.stub.Attend(metadata=peer.metadata)
    await stream.write(pb.DeviceMessage(bodies=[bytes(3)] * 100))
    while await stream.read() is not grpc.aio.EOF:
        pass


async def large_requests_without_a_token(w: World, peer: Peer, call: pb.Call) -> None:
    """Enroll calls of more than a mebibyte from nobody."""
    request = pb.EnrollRequest(devices=[pb.Identity(client="x" * CHUNK_BYTES)])
    enrolling = [w.stub().Enroll(request, metadata=((TOKEN, b"guess"),)) for _ in range(AT_ONCE)]
    for each in enrolling:
        assert await each.code() is grpc.StatusCode.UNAUTHENTICATED


ATTACKS: dict[str, Callable[[World, Peer, pb.Call], Awaitable[object]]] = {
    "c": half_open_uploads,
    "d": unread_downloads,
    "e": impossible_numbers,
    "f": other_names,
    "g": refusals_without_end,
    "h": body_after_body,
    "i": garbage,
    "j": large_requests_without_a_token,
}


async def decline_all(w: World, client: str) -> None:
    """Decline every call until the goodbye: a round in lockstep waits for all devices."""
    peer = await w.attend(client)
    while not (message := await peer.read()).HasField("goodbye"):
        for call in message.calls:
            declined = pb.Answer(client=client, round=call.round, attempt=call.attempt)
            declined.decision = pb.DECISION_DECLINE
            await peer.stream.write(pb.DeviceMessage(answers=[declined]))


async def attack(w: World, client: str, struck: asyncio.Event, lockstep: bool) -> None:
    """Attack once, and hold on to what is open then."""
    held = None
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the server ended the session
        peer = await w.attend(client)
        held = await ATTACKS[client](w, peer, await peer.called())
    struck.set()
    if lockstep:
        await decline_all(w, client)
    await asyncio.Future()
    del held


async def model_of_run(world: MakeWorld, folder: Path, attackers: str, clock: str) -> bytes:
    """The model with which a run of devices a and b ends."""
    lockstep = clock == "rounds"
    (folder / "models").mkdir(parents=True)
    w = await world(
        parameters=PARAMETERS,
        clients="ab" + attackers,
        clock=clock,
        folder=folder,
        rounds=ROUNDS,
        goal=None if lockstep else 2,
        transfers=4,
        heartbeat_s=3600,
    )
    struck = {client: asyncio.Event() for client in attackers}
    attacks = [asyncio.create_task(attack(w, *item, lockstep)) for item in struck.items()]
    devices = [asyncio.create_task(device(w, client, struck.values())) for client in "ab"]
    assert await w.finish() == ("completed", f"{ROUNDS} rounds")
    await asyncio.gather(*devices)
    for task in attacks:
        task.cancel()
    await asyncio.gather(*attacks, return_exceptions=True)
    folded = [client for client, outcome, _ in w.outcomes() if outcome == "folded"]
    assert sorted(folded) == sorted("ab" * ROUNDS)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("clock", ["rounds", "wall"])
async def test_a_run_beside_hostile_peers_gives_the_model_of_a_run_without(
    world: MakeWorld, tmp_path: Path, clock: str
) -> None:
    alone = await model_of_run(world, tmp_path / "alone", "", clock)
    assert await model_of_run(world, tmp_path / "beside", "".join(ATTACKS), clock) == alone
