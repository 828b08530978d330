"""Every call of the schema is served, and none is read before its caller is known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.integration.conftest import FLEET

from muster.v1 import fleet_pb2 as pb
from muster.v1 import operator_pb2
from muster.wire import SESSION, TOKEN
from muster.wire.channels import client_options
from muster.wire.connections.calls import open_channel

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

PATIENCE_S = 5.0
METHODS = [
    f"/{service.full_name}/{method.name}"
    for schema in (pb.DESCRIPTOR, operator_pb2.DESCRIPTOR)
    for service in schema.services_by_name.values()
    for method in service.methods
]
WRONG = [(key, b"0123456789abcdef") for key in (TOKEN, SESSION)]


async def code_of(w: World, method: str, metadata: Sequence[tuple[str, bytes]]) -> grpc.StatusCode:
    """How a call ends whose caller sends nothing but metadata."""
    channel = open_channel(f"127.0.0.1:{w.port}", client_options(), None)
    w.channels.append(channel)
    async with asyncio.timeout(PATIENCE_S):
        return await channel.stream_stream(method)(metadata=metadata).code()


@pytest.mark.parametrize("metadata", [[], WRONG], ids=["no credential", "wrong credentials"])
@pytest.mark.parametrize("method", METHODS)
async def test_every_call_is_served_and_refused_before_its_request_is_read(
    world: MakeWorld, method: str, metadata: Sequence[tuple[str, bytes]]
) -> None:
    w = await world()
    assert await code_of(w, method, metadata) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_call_that_the_schema_does_not_have_is_not_served(world: MakeWorld) -> None:
    w = await world()
    code = await code_of(w, "/muster.v1.Fleet/Nothing", [])
    assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_probe_counts_what_arrives_and_sends_what_is_asked_for(world: MakeWorld) -> None:
    w = await world()
    probing = w.stub().Probe(metadata=((TOKEN, FLEET.shown),))
    await probing.write(pb.ProbeMessage(payload=bytes(1000)))
    await probing.write(pb.ProbeMessage(payload=bytes(24), wanted_bytes=7))
    first, second = await probing.read(), await probing.read()
    assert isinstance(first, pb.ProbeReply)
    assert isinstance(second, pb.ProbeReply)
    assert (first.received, first.payload) == (1000, b"")
    assert (second.received, second.payload) == (1024, bytes(7))
    assert second.at >= first.at
    await probing.done_writing()
    assert await probing.code() is grpc.StatusCode.OK
