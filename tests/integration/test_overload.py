"""A server that is asked for too much refuses the newest calls, and says when to come again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import pytest
from tests.integration.conftest import FLEET

from muster.chaos.hostile_connections import HostileConnections
from muster.client.connection.link import ServerLink
from muster.client.connection.transport_errors import error_of
from muster.common.clock import WallClock
from muster.common.errors import Overloaded
from muster.common.exchange import Call, Fingerprint, Identity, Key
from muster.common.lines import LinkModel
from muster.common.testing import ManualClock
from muster.server.rpc.limits import CALLS, ENROLLMENT_S, ENROLLMENTS, FAULTS
from muster.v1 import fleet_pb2 as pb
from muster.wire import RETRY_AFTER, TOKEN
from muster.wire.bodies import checksum
from muster.wire.channels import METADATA_BYTES, client_options, server_options
from muster.wire.transport import GRPC

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

T = TypeVar("T")

LARGE = 1 << 16
"""Parameters of a model that does not travel inline."""


async def soon(what: Awaitable[T]) -> T:
    async with asyncio.timeout(20.0):
        return await what


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await soon(call)
    return error.value


async def hold_calls(w: World, number: int) -> list[Any]:
    """Open calls of one caller that the server works on."""
    shown = ((TOKEN, FLEET.shown),)
    calls: list[Any] = []
    while len(calls) < number:
        stub = w.stub()  # a connection has fewer streams
        for _ in range(min(16, number - len(calls))):
            call = stub.Probe(metadata=shown)
            await call.write(pb.ProbeMessage(wanted_bytes=1))
            await soon(call.read())
            calls.append(call)
    return calls


async def test_the_newest_call_is_refused_and_says_when_to_come_again(world: MakeWorld) -> None:
    w = await world()
    held = await hold_calls(w, CALLS)
    error = await failure(w.enroll("a"))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"device/all has {CALLS} calls open" in (error.details() or "")
    ours = error_of(error)
    assert isinstance(ours, Overloaded)
    assert (ours.definite, ours.retry_after_s) == (True, 1.0)
    for call in held:  # those before it go on
        await call.write(pb.ProbeMessage(wanted_bytes=1))
        assert (await soon(call.read())).payload == bytes(1)
    held[0].cancel()
    enrolled = None
    while enrolled is None:  # the server hears of it a moment later
        with suppress(grpc.aio.AioRpcError):
            enrolled = await w.enroll("a")


async def test_a_process_that_enrolls_without_end_is_refused_until_its_time_has_come(
    world: MakeWorld,
) -> None:
    clock = ManualClock()
    w = await world(time=clock, heartbeat_s=1e6, stall_s=1e6)
    for _ in range(ENROLLMENTS):
        await w.enroll("a")
    error = await failure(w.enroll("a"))
    assert "device/all enrolls too often" in (error.details() or "")
    assert dict(error.trailing_metadata() or ()) == {RETRY_AFTER: f"{ENROLLMENT_S:.3f}"}
    clock.advance(ENROLLMENT_S)
    await w.enroll("a")


async def test_a_process_that_sends_garbage_without_end_is_not_read_any_more(
    world: MakeWorld,
) -> None:
    clock = ManualClock()
    w = await world(time=clock, heartbeat_s=1e6, stall_s=1e6)
    a, _ = await w.both()
    for _ in range(FAULTS):
        call = a.stub.Submit(iter([pb.SubmitMessage(chunk=b"")]), metadata=a.metadata)
        assert (await failure(call)).code() is grpc.StatusCode.INVALID_ARGUMENT
    error = await failure(a.stub.Submit(metadata=a.metadata))  # a write would race with the refusal
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "too many malformed calls" in (error.details() or "")


@pytest.mark.parametrize("method", ["Submit", "Fetch"])
async def test_bytes_that_are_no_message_count_as_malformed(world: MakeWorld, method: str) -> None:
    w = await world(time=ManualClock(), heartbeat_s=1e6, stall_s=1e6)
    a, _ = await w.both()
    send: Any = w.channel().stream_unary(f"/muster.v1.Fleet/{method}")
    for _ in range(FAULTS):
        error = await failure(send(iter([b"\xff\xff\xff"]), metadata=a.metadata))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = await failure(send(metadata=a.metadata))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("nbytes", [METADATA_BYTES, 100 * METADATA_BYTES])
async def test_metadata_beyond_the_limit_is_refused_and_the_connection_goes_on(
    world: MakeWorld, nbytes: int
) -> None:
    w = await world()
    stub = w.stub()
    call = stub.Enroll(pb.EnrollRequest(), metadata=(("x", "y" * nbytes),))
    assert (await failure(call)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await failure(stub.Enroll(pb.EnrollRequest()))).code() is (
        grpc.StatusCode.UNAUTHENTICATED
    )


class Refusing(ManualClock):
    """A clock that notes for how long it is asked to wait, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep_until(self, instant: float) -> None:
        self.waits.append(instant - self.monotonic())
        self.advance(max(0.0, instant - self.monotonic()))
        await asyncio.sleep(0)


async def test_a_device_waits_as_long_as_the_server_asks(world: MakeWorld) -> None:
    w = await world(parameters=LARGE)
    clock = Refusing()
    link = ServerLink(f"127.0.0.1:{w.port}", FLEET.shown, clock, LinkModel())
    await link.enroll([Identity("a", 10)], Fingerprint("test", "test", "cpu", 1))
    held = await hold_calls(w, CALLS)
    body = bytes(4 * LARGE)
    call = Call(Key("a", 1, 1), 0, 0.0, checksum(body), 1, 0, 0)
    with pytest.raises(Overloaded):
        await link.fetch(call, len(body))
    assert clock.waits == pytest.approx([1.1, 1.2, 1.4, 1.8])
    for each in held:
        each.cancel()
    await link.close()


async def test_the_port_takes_so_many_connections_and_the_next_when_one_has_gone() -> None:
    """A server of its own, because it is about gRPC's own limit."""
    most = 8
    options = {**dict(server_options(connections=most)), "grpc.server_handshake_timeout_ms": 200}
    server = GRPC.server(list(options.items()))
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "test.Test", {"call": grpc.unary_unary_rpc_method_handler(_echo)}
            ),
        )
    )
    port = GRPC.listen(server, "127.0.0.1:0")
    await server.start()
    hostile = HostileConnections("127.0.0.1", port)
    await hostile.open(4 * most)
    channel = GRPC.channel(f"127.0.0.1:{port}", client_options())
    # The hostile connections are closed when their time for a handshake is over, or at once.
    method: Any = channel.unary_unary("/test.Test/call")
    call = method(b"served", wait_for_ready=True)
    assert await soon(call) == b"served"
    clock = WallClock()
    while len(hostile) > most:
        await clock.sleep_until(clock.monotonic() + 0.01)
        hostile.forget_closed()
    await hostile.close()
    await channel.close()
    await server.stop(None)


async def _echo(request: bytes, context: Any) -> bytes:
    return request
