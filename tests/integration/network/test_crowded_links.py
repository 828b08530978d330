"""More connections come to a device's port than a device has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
from tests.integration.network.hostile import open_files

from muster.common.testing import ManualClock
from muster.emulator.gateway.faults import Fault
from muster.emulator.gateway.ports import CONNECTIONS, SILENT_S, connections_of_a_link
from muster.emulator.links.shape import Shape

if TYPE_CHECKING:
    from tests.integration.network.conftest import End, Start, World

    from muster.emulator.gateway.faults import FaultName

PATIENCE_S = 30.0


async def speak(ends: tuple[End, End], word: bytes = b"word") -> None:
    """Prove that a connection carries bytes both ways."""
    device, server = ends
    await device.send(word)
    assert await server.receive(len(word)) == word
    await server.send(word)
    assert await device.receive(len(word)) == word


def connections(world: World, client: str = "a") -> int:
    return len(world.gateway.connections_of(world.gateway.devices[client]))


async def test_silent_connections_give_way_and_those_of_the_device_stay(start: Start) -> None:
    world = await start()
    async with asyncio.timeout(PATIENCE_S):
        known = await world.connect()
        await speak(known)
        before = open_files()
        for number in range(5 * CONNECTIONS):
            await world.connect()
            if number % CONNECTIONS == 0:
                await speak(known)
                await world.echo("a")
                await world.echo("b")
        assert connections(world) <= CONNECTIONS
        # A connection has four ends, all in this process; those that gave way have one or two until
        # this test looks at them.
        assert await world.ends[2].fate() == "reset"
        for end in world.ends:
            if end.reader.at_eof() or end.reader.exception() is not None:
                end.abort()
        assert open_files() <= before + 4 * CONNECTIONS + 2 * 6 * CONNECTIONS


async def test_a_link_that_is_full_of_speakers_takes_no_more(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    world = await start()
    async with asyncio.timeout(PATIENCE_S):
        all_ends = [await world.connect() for _ in range(CONNECTIONS)]
        for ends in all_ends:
            await speak(ends)
        for _ in range(10):
            with pytest.raises(ConnectionError):
                await (await world.dial()).receive(1)
        for ends in all_ends:
            await speak(ends)
        await world.echo("b")
        assert len(caplog.messages) == 1
        assert "a: a connection is reset, because the link has 16 already" in caplog.text
        all_ends[3][0].abort()
        assert await all_ends[3][1].fate() == "reset"
        await speak(await world.connect())


async def test_a_connection_over_which_nothing_comes_is_ended_in_time(start: Start) -> None:
    clock = ManualClock()
    world = await start(clock=clock)
    async with asyncio.timeout(PATIENCE_S):
        silent, known = await world.connect(), await world.connect()
        await speak(known)
        clock.advance(SILENT_S - 1.0)
        await speak(known)
        assert connections(world) == 2
        clock.advance(SILENT_S)
        assert await silent[0].fate() == "reset"
        assert await silent[1].fate() == "reset"
        await speak(known)


@pytest.mark.parametrize("fault", ["blackhole", "offline"])
async def test_a_fault_does_not_make_connections_pile_up(start: Start, fault: FaultName) -> None:
    world = await start()
    device = world.gateway.devices["a"]
    async with asyncio.timeout(PATIENCE_S):
        world.gateway.fault([device], Fault(fault=fault))
        before = open_files()
        dialled = []
        for _ in range(5 * CONNECTIONS):
            dialled.append(await world.dial())
            await world.echo("b")
            # One end is here, and one in the gateway while it has the connection; those of the
            # last echo may still be closing.
            assert open_files() <= before + len(dialled) + CONNECTIONS + 8
        world.gateway.heal([device])
        await speak(await world.connect())


@pytest.mark.parametrize("shape", [Shape(), Shape(up_bps=8e6, rtt_s=0.01)])
async def test_garbage_fills_no_memory(start: Start, shape: Shape) -> None:
    """All connections of a link send more than it carries, to a server that does not read."""
    world = await start(shape)
    async with asyncio.timeout(PATIENCE_S):
        all_ends = [await world.connect() for _ in range(CONNECTIONS)]
        for device, server in all_ends:
            cast("asyncio.Transport", server.writer.transport).pause_reading()
            device.writer.write(b"\xff" * (8 << 20))
        for _ in range(5):
            await world.echo("b")
        lane = world.gateway.devices["a"].lanes["up"]
        most = 256 * 1024 if shape == Shape() else lane.queue_bytes + lane.line_bytes
        for each in world.gateway.connections_of(world.gateway.devices["a"]):
            assert len(each.halves["up"].held) <= most
        assert most <= 1 << 20


@pytest.mark.parametrize(
    ("devices", "files", "connections"),
    [(1, 1024, CONNECTIONS), (10, 1024, CONNECTIONS), (100, 1024, 4), (1000, 20_000, 9)],
)
def test_all_links_have_room_in_the_open_files(devices: int, files: int, connections: int) -> None:
    assert connections_of_a_link(devices, files) == connections
