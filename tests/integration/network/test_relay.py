"""Bytes through a gateway, over real sockets."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, cast

import pytest

from muster.common.shared_lines import SharedLine
from muster.emulator.links.shape import Queueing, Shape, SharedState

if TYPE_CHECKING:
    from tests.integration.network.conftest import Start

SHAPES = [
    pytest.param(Shape(), id="straight"),
    pytest.param(Shape(rtt_s=0.01, jitter_s=0.002), id="far"),
    pytest.param(Shape(down_bps=80e6, up_bps=80e6), id="slow"),
    pytest.param(Shape(down_bps=80e6, up_bps=80e6, fading=0.5, rtt_s=0.005), id="fading"),
]


def noise(nbytes: int) -> bytes:
    return random.Random(nbytes).randbytes(nbytes)


@pytest.mark.parametrize("shape", SHAPES)
async def test_bytes_arrive_both_ways(start: Start, shape: Shape) -> None:
    world = await start(shape)
    device, server = await world.connect()
    there, back = noise(300_000), noise(200_001)
    _, got, _, gave = await asyncio.gather(
        device.send(there),
        server.receive(len(there)),
        server.send(back),
        device.receive(len(back)),
    )
    assert (got, gave) == (there, back)
    delivered = world.gateway.devices["a"].delivered
    assert delivered == {"up": len(there), "down": len(back)}


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_end_comes_after_everything_before_it_and_leaves_the_other_way_open(
    start: Start, shape: Shape
) -> None:
    world = await start(shape)
    device, server = await world.connect()
    there, back = noise(300_000), noise(100_000)
    device.writer.write(there)
    device.writer.write_eof()
    assert await server.reader.read() == there
    await server.send(back)
    server.writer.close()
    assert await device.reader.read() == back


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_abort_of_one_side_aborts_the_other(start: Start, shape: Shape) -> None:
    world = await start(shape)
    for aborts in (0, 1):
        ends = await world.connect()
        await ends[0].send(b"x")
        await ends[1].receive(1)
        ends[aborts].abort()
        assert await ends[1 - aborts].fate() == "reset"


async def test_a_sender_is_held_back_by_a_receiver_that_does_not_read(start: Start) -> None:
    for shape in (Shape(), Shape(up_bps=8e9)):
        world = await start(shape)
        device, server = await world.connect()
        transport = cast("asyncio.Transport", server.writer.transport)
        transport.pause_reading()
        device.writer.transport.set_write_buffer_limits(high=0)
        data = noise(64 << 20)
        device.writer.write(data)
        drained = asyncio.create_task(device.writer.drain())
        await world.echo("b")
        assert not drained.done()
        connections = world.gateway.connections_of(world.gateway.devices["a"])
        held = [len(each.halves["up"].held) for each in connections]
        assert max(held) <= 9 << 20
        transport.resume_reading()
        assert await server.receive(len(data)) == data
        await drained


async def test_a_slow_link_holds_its_sender_back(start: Start) -> None:
    world = await start(Shape(up_bps=800_000))
    device, server = await world.connect()
    device.writer.transport.set_write_buffer_limits(high=0)
    device.writer.write(noise(16 << 20))
    await server.receive(20_000)
    read = world.gateway.devices["a"].read["up"]
    delivered = world.gateway.devices["a"].delivered["up"]
    assert read - delivered <= 16 * 1024 + 64 * 1024


async def test_a_server_that_is_not_there_resets_the_device(start: Start) -> None:
    world = await start()
    world.gateway.set_upstream("127.0.0.1:1")
    device = await world.dial()
    assert await device.fate() == "reset"


async def test_a_rate_is_never_exceeded(start: Start) -> None:
    world = await start(Shape(up_bps=8e6))
    device, server = await world.connect()
    began = world.clock.monotonic()
    device.writer.write(bytes(500_000))
    for part in range(1, 6):
        await server.receive(100_000)
        # 1 MB/s since the first byte, whatever the machine was doing; timers are 0.5 ms early.
        assert world.clock.monotonic() - began >= part * 0.1 - 0.001


async def test_a_round_trip_takes_as_long_as_asked(start: Start) -> None:
    world = await start(Shape(rtt_s=0.1))
    device, server = await world.connect()
    began = world.clock.monotonic()
    await device.send(b"ping")
    await server.receive(4)
    assert world.clock.monotonic() - began >= 0.049
    await server.send(b"pong")
    await device.receive(4)
    assert world.clock.monotonic() - began >= 0.098


async def test_devices_share_what_the_group_has(start: Start) -> None:
    world = await start(shared=SharedLine(up_bps=8e6))
    pairs = [await world.connect(each) for each in "abc"]
    began = world.clock.monotonic()
    for device, _ in pairs:
        device.writer.write(bytes(250_000))
    await asyncio.gather(*(server.receive(150_000) for _, server in pairs))
    assert world.clock.monotonic() - began >= 0.45 - 0.001
    got = [world.gateway.devices[each].delivered["up"] for each in "abc"]
    assert max(got) - min(got) <= 0.2 * max(got)


@pytest.mark.parametrize("seed", range(8))
async def test_settings_that_change_all_the_time_lose_and_reorder_nothing(
    start: Start, seed: int
) -> None:
    world = await start()
    chance = random.Random(seed)
    device, server = await world.connect()
    shapes = [
        Shape(),
        Shape(up_bps=400e6),
        Shape(rtt_s=0.004, jitter_s=0.003),
        Shape(up_bps=100e6, fading=1.0, rtt_s=0.002),
    ]
    data, pieces = noise(8 << 20), []
    device.writer.write(data)
    device.writer.write_eof()
    while piece := await server.reader.read(chance.randrange(1, 400_000)):
        pieces.append(piece)
        if chance.random() < 0.5:
            world.gateway.set_shapes({"a": chance.choice(shapes)})
        if chance.random() < 0.1:
            world.gateway.set_shared(SharedState(most_up_bps=chance.choice([None, 300e6])))
    assert b"".join(pieces) == data


async def test_a_connection_in_slow_start_waits_for_round_trips(start: Start) -> None:
    world = await start(Shape(rtt_s=0.1, initial_window=10))
    device, server = await world.connect()
    there = noise(14_600 * 7 + 1)  # 10, 20 and 40 packets, and a byte in the fourth round trip
    began = asyncio.get_running_loop().time()
    await asyncio.gather(device.send(there), server.receive(len(there)))
    assert asyncio.get_running_loop().time() - began >= 3.5 * 0.1


@pytest.mark.parametrize("queueing", ["fifo", "fair"])
async def test_a_message_waits_behind_what_came_before_it_or_passes(
    start: Start, queueing: Queueing
) -> None:
    world = await start(Shape(up_bps=1e6, queue_up_bytes=131_072, queueing=queueing))
    bulk, message = await world.connect(), await world.connect()
    there, device = noise(100_000), world.gateway.devices["a"]
    bulk[0].writer.write(there)
    while device.read["up"] < len(there):  # until all of it is in the queue
        await asyncio.sleep(0)
    await message[0].send(b"?")
    await message[1].receive(1)
    passed = device.delivered["up"] < len(there)
    assert passed is (queueing == "fair")
    assert await bulk[1].receive(len(there)) == there
