"""A device is revoked while it is in the middle of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import pytest
from tests.integration.conftest import OPERATOR, OPERATOR_METADATA

from muster.chaos.peer import FINGERPRINT
from muster.common.credentials import Credentials
from muster.common.testing import made_credentials
from muster.v1 import fleet_pb2 as pb
from muster.v1 import operator_pb2
from muster.wire import PROTOCOL_VERSION, SESSION, TOKEN

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

T = TypeVar("T")

A, B = made_credentials("device/a", byte=2), made_credentials("device/b", byte=3)
SERVER = made_credentials("server", [OPERATOR]).model_copy(
    update={"callers": [OPERATOR.as_caller(), A.as_caller("a"), B.as_caller("b")]}
)
LARGE = 1 << 16
"""Parameters of a model that does not travel inline."""

WHY = "UNAUTHENTICATED: the credentials of device/a have been revoked"


async def soon(what: Awaitable[T]) -> T:
    async with asyncio.timeout(10.0):
        return await what


class Device:
    """A device with credentials of its own, whose stream is open."""

    def __init__(self, w: World, client: str, session: bytes) -> None:
        self.client, self.stub = client, w.stub()
        self.metadata = ((SESSION, session),)
        self.stream = self.stub.Attend(metadata=self.metadata)

    @classmethod
    async def come(cls, w: World, credentials: Credentials) -> Device:
        client = credentials.name[-1]
        reply = await w.stub().Enroll(request(client), metadata=((TOKEN, credentials.shown),))
        device = cls(w, client, reply.enrolled.session)
        await soon(device.stream.read())  # the greeting
        return device

    async def called(self) -> pb.Call:
        while True:
            message = await soon(self.stream.read())
            assert isinstance(message, pb.ServerMessage), "the stream has ended"
            if message.calls:
                return message.calls[0]

    async def answers(self, call: pb.Call, decision: pb.Decision.ValueType) -> None:
        answer = pb.Answer(client=self.client, round=call.round, attempt=call.attempt)
        answer.decision = decision
        await self.stream.write(pb.DeviceMessage(answers=[answer]))

    async def ended(self) -> None:
        while await soon(self.stream.read()) is not grpc.aio.EOF:
            pass


def request(client: str) -> pb.EnrollRequest:
    return pb.EnrollRequest(
        protocol_version=PROTOCOL_VERSION,
        devices=[pb.Identity(client=client, examples=10, capacity=1.0)],
        fingerprint=FINGERPRINT,
    )


async def revoke(w: World, client: str) -> operator_pb2.RevokeReply:
    asked = operator_pb2.RevokeRequest(client=client)
    return await soon(w.operator().Revoke(asked, metadata=OPERATOR_METADATA))


async def refusal(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await soon(call)
    return f"{error.value.code().name}: {error.value.details()}"


async def test_a_revoked_device_is_cut_off_and_the_round_goes_on_without_it(
    world: MakeWorld,
) -> None:
    w = await world(credentials=SERVER, rounds=2)
    a, b = await Device.come(w, A), await Device.come(w, B)
    await a.answers(await a.called(), pb.DECISION_ACCEPT)
    await w.until("answered", client="a")
    reply = await revoke(w, "a")
    assert (reply.process, list(reply.clients)) == ("device/a", ["a"])
    await a.ended()
    assert (await w.until("left", client="a"))["why"] == "its credentials have been revoked"
    await w.until("revoked", process="device/a", clients=["a"])
    assert await revoke(w, "a") == reply
    assert sum(event["event"] == "revoked" for event in w.events) == 1
    assert await refusal(a.stub.Attend(metadata=a.metadata).read()) == WHY
    fetch = a.stub.Fetch(pb.FetchRequest(version=0), metadata=a.metadata)
    assert await refusal(fetch.read()) == WHY
    enroll = w.stub().Enroll(request("a"), metadata=((TOKEN, A.shown),))
    assert await refusal(enroll) == WHY
    for _ in range(2):  # both rounds end without it
        await b.answers(await b.called(), pb.DECISION_DECLINE)
    assert await soon(w.finish()) == ("completed", "2 rounds")


@pytest.mark.parametrize(
    "begin",
    [
        lambda d: d.stub.Submit(metadata=d.metadata),
        lambda d: d.stub.Probe(metadata=((TOKEN, A.shown),)),
    ],
    ids=["Submit", "Probe"],
)
async def test_the_calls_that_are_open_end(
    world: MakeWorld, begin: Callable[[Device], Any]
) -> None:
    w = await world(credentials=SERVER, parameters=LARGE)
    a = await Device.come(w, A)
    await Device.come(w, B)
    call, open = await a.called(), begin(a)
    if isinstance(open, grpc.aio.StreamUnaryCall):
        update = pb.Update(client="a", round=call.round, attempt=call.attempt, examples=10)
        update.checksum, update.length = bytes(16), 4 * LARGE
        await open.write(pb.SubmitMessage(header=pb.SubmitHeader(update=update)))
        await soon(open.initial_metadata())  # its turn has come
        await revoke(w, "a")
        assert await soon(open.code()) is grpc.StatusCode.UNAVAILABLE
        assert "its credentials have been revoked" in await open.details()
    else:
        await open.write(pb.ProbeMessage(wanted_bytes=1))
        await soon(open.read())
        await revoke(w, "a")
        await open.write(pb.ProbeMessage(wanted_bytes=1))
        assert await refusal(open.read()) == WHY


async def test_a_fleet_assembles_without_its_revoked_devices(world: MakeWorld) -> None:
    w = await world(credentials=SERVER)
    b = await Device.come(w, B)
    await revoke(w, "a")
    await b.answers(await b.called(), pb.DECISION_DECLINE)
    assert (await soon(w.finish()))[0] == "completed"


async def test_a_device_that_the_run_does_not_have_cannot_be_revoked(world: MakeWorld) -> None:
    w = await world(credentials=SERVER)
    asked = operator_pb2.RevokeRequest(client="x" * 9000)
    found = await refusal(w.operator().Revoke(asked, metadata=OPERATOR_METADATA))
    assert found == f"NOT_FOUND: the run has no device '{'x' * 200}'"


async def test_only_the_operator_revokes(world: MakeWorld, tmp_path: Path) -> None:
    w = await world(credentials=SERVER)
    call = w.operator().Revoke(operator_pb2.RevokeRequest(client="b"), metadata=((TOKEN, A.shown),))
    assert (await refusal(call)).startswith("PERMISSION_DENIED: only the operator")
    assert not (tmp_path / "revoked.json").exists()
