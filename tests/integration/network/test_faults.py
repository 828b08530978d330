"""What faults do to real sockets, and what healing does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from muster.emulator.links.shape import Shape

if TYPE_CHECKING:
    from tests.integration.network.conftest import Start

SHAPES = [
    pytest.param(Shape(), id="straight"),
    pytest.param(Shape(up_bps=80e6, down_bps=80e6, rtt_s=0.002), id="shaped"),
]


@pytest.mark.parametrize("shape", SHAPES)
async def test_offline_ends_connections_and_refuses_new_ones(start: Start, shape: Shape) -> None:
    world = await start(shape)
    device, server = await world.connect()
    device.writer.write(bytes(100_000))
    controller = await world.controller()
    await controller.fault(["a"], "offline")
    assert list(await asyncio.gather(device.fate(), server.fate())) == ["end", "end"]
    assert await (await world.dial()).fate() == "end"
    await world.echo("b")
    await controller.heal(["a"])
    await world.echo("a")
    await controller.close()


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_black_hole_forwards_nothing_and_its_end_resets(start: Start, shape: Shape) -> None:
    world = await start(shape)
    device, server = await world.connect()
    controller = await world.controller()
    await controller.fault(["a"], "blackhole")
    new = await world.dial()
    await device.send(b"lost")
    await server.send(b"lost")
    await new.send(b"lost")
    await world.echo("b")
    a = world.gateway.devices["a"]
    assert a.delivered == {"up": 0, "down": 0}
    assert world.accepted.empty()
    assert not any(end.reader.at_eof() for end in (device, server, new))
    await controller.heal()
    fates = await asyncio.gather(device.fate(), server.fate(), new.fate())
    assert list(fates) == ["reset", "reset", "reset"]
    await world.echo("a")
    await controller.close()


async def test_a_peer_that_leaves_through_a_black_hole_is_not_missed(start: Start) -> None:
    world = await start()
    device, server = await world.connect()
    controller = await world.controller()
    await controller.fault(["a"], "blackhole")
    device.abort()
    await world.echo("b")
    assert not server.reader.at_eof()
    await controller.heal()
    assert await server.fate() == "reset"
    await controller.close()


@pytest.mark.parametrize("shape", SHAPES)
async def test_reset_strikes_once(start: Start, shape: Shape) -> None:
    world = await start(shape)
    device, server = await world.connect()
    controller = await world.controller()
    await controller.fault(["a"], "reset")
    assert list(await asyncio.gather(device.fate(), server.fate())) == ["reset", "reset"]
    await world.echo("a")
    await controller.close()


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_cut_takes_one_direction(start: Start, shape: Shape) -> None:
    world = await start(shape)
    device, server = await world.connect()
    controller = await world.controller()
    await controller.fault(["a"], "cut", direction="up")
    await device.send(bytes(1_000_000))  # taken, and thrown away
    await server.send(b"heard")
    assert await device.receive(5) == b"heard"
    new_device, new_server = await world.connect()
    await new_device.send(b"lost")
    await new_server.send(b"heard")
    assert await new_device.receive(5) == b"heard"
    assert world.gateway.devices["a"].delivered["up"] == 0
    device.abort()  # which is news that does not get through
    await world.echo("b")
    assert not server.reader.at_eof()
    await controller.heal(["a"])
    fates = await asyncio.gather(server.fate(), new_device.fate(), new_server.fate())
    assert list(fates) == ["reset", "reset", "reset"]
    await world.echo("a")
    await controller.close()


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_limit_resets_every_connection_at_that_byte(start: Start, shape: Shape) -> None:
    world = await start(shape)
    old = await world.connect()
    await old[0].send(bytes(500))
    await old[1].receive(500)
    controller = await world.controller()
    await controller.fault(["a"], "limit", direction="up", nbytes=2000)
    new = await world.connect()
    for device, server in (old, new):
        await server.send(bytes(5000))  # the other direction has no limit
        await device.receive(5000)
        await device.send(bytes(1000))
        await server.receive(1000)
        device.writer.write(bytes(5000))
        await server.receive(1000)
        assert await server.fate() == "reset"
    assert world.gateway.devices["a"].delivered["up"] == 500 + 2 * 2000
    await controller.heal(["a"])
    device, server = await world.connect()
    await device.send(bytes(5000))
    await server.receive(5000)
    await controller.close()


async def test_a_fault_with_a_time_heals_by_itself(start: Start) -> None:
    world = await start()
    device, server = await world.connect()
    controller = await world.controller()
    await controller.fault(["a"], "blackhole", for_s=0.05)
    assert list(await asyncio.gather(device.fate(), server.fate())) == ["reset", "reset"]
    await world.echo("a")
    await controller.close()


async def test_a_later_fault_is_not_ended_by_the_time_of_an_earlier_one(start: Start) -> None:
    world = await start()
    controller = await world.controller()
    await controller.fault(["a"], "offline", for_s=0.02)
    await controller.fault(["a"], "offline")
    await controller.fault(["b"], "offline", for_s=0.04)
    while world.gateway.devices["b"].active_faults:
        await controller.ping()
    assert world.gateway.devices["a"].active_faults.offline
    await controller.close()
