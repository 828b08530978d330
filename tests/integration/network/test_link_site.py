"""What holds on links, and gateways that hang, heal themselves, die and come back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.integration.network.conftest import GATEWAY

from muster.common.credentials import write_credentials
from muster.common.testing import ManualClock
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.gateway.faults import Fault
from muster.emulator.links.shape import Shape

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.network.conftest import MakeFleet, Start

SHAPE = Shape(up_bps=80e6, down_bps=80e6)
BLACKHOLE = LinkChange(faults=(Fault(fault="blackhole"),))
CUT_UP = LinkChange(faults=(Fault(fault="cut", direction="up"),))
CUT_BOTH = LinkChange(
    faults=(Fault(fault="cut", direction="up"), Fault(fault="cut", direction="down"))
)


async def test_a_gateway_that_healed_itself_gets_what_still_holds(
    start: Start, fleets: MakeFleet
) -> None:
    clock, fleet = ManualClock(), fleets()
    world = await start(SHAPE, control_clock=clock, lease_s=10.0)
    await fleet.join(world)
    slower = LinkChange(rate_factor=0.5)
    await fleet.links.begin(["a", "b"], BLACKHOLE)
    await fleet.links.begin(["a"], slower)
    await fleet.links.begin(["c"], slower)
    a, b, c = world.gateway.devices.values()
    before = fleet.network.controller("phones")
    clock.advance(11.0)  # as if the gateway had been paused: its lease is over
    await fleet.until(lambda: fleet.network.controller("phones") is not before)
    await fleet.links.end(["b"], BLACKHOLE)
    await fleet.links.end(["c"], slower)
    await fleet.until(lambda: a.active_faults.blackhole)
    assert (a.shape.up_bps, c.shape.up_bps) == (40e6, 80e6)
    assert not b.active_faults
    await fleet.links.end(["a"], BLACKHOLE)
    await fleet.links.end(["a"], slower)
    assert (bool(a.active_faults), a.shape) == (False, SHAPE)


async def test_what_is_healed_while_a_gateway_is_away_does_not_come_back(
    start: Start, fleets: MakeFleet
) -> None:
    fleet = fleets()
    world = await start(SHAPE)
    await fleet.join(world)
    a, b, _ = world.gateway.devices.values()
    await fleet.links.begin(["a"], BLACKHOLE)
    await fleet.network.controller("phones").close()  # the connection is lost; the lease is not
    await fleet.links.end(["a"], BLACKHOLE)
    await fleet.links.begin(["b"], BLACKHOLE)
    await fleet.until(lambda: b.active_faults.blackhole)
    assert not a.active_faults


async def test_who_measures_a_link_that_is_connected_again_finds_on_it_what_holds(
    start: Start, fleets: MakeFleet
) -> None:
    clock, fleet = ManualClock(), fleets()
    world = await start(SHAPE, control_clock=clock, lease_s=10.0)
    await fleet.join(world)
    await fleet.links.begin(["a"], BLACKHOLE)
    a = world.gateway.devices["a"]
    clock.advance(11.0)  # the gateway heals itself and ends the connection
    await fleet.until(lambda: not a.active_faults)
    while "a" not in await fleet.links.measures(["a"]):
        await asyncio.sleep(0)
    assert a.active_faults.blackhole


async def test_links_of_other_gateways_do_not_wait_for_one_that_is_gone(
    start: Start, fleets: MakeFleet
) -> None:
    fleet = fleets()
    near = await start(SHAPE)
    gone = near.gateway.config.model_copy(
        update={"group": "gone", "devices": [GatewayDevice(client="x", shape=SHAPE)]}
    )
    await fleet.add(near.gateway.config, near.ports)
    fleet.know(gone)
    await fleet.network.add(gone, Ports(host="127.0.0.1", control=1, devices={"x": 1}))
    slower = LinkChange(rate_factor=0.25)
    await fleet.links.begin(["x", "a"], slower)
    assert near.gateway.devices["a"].shape.up_bps == 20e6
    assert set(await fleet.links.measures(["x", "a"])) == {"a"}
    await fleet.links.end(["x", "a"], slower)
    assert near.gateway.devices["a"].shape == SHAPE


async def test_of_cuts_that_overlap_each_direction_ends_with_its_last(
    start: Start, fleets: MakeFleet
) -> None:
    fleet = fleets()
    world = await start(SHAPE)
    await fleet.join(world)
    faults = world.gateway.devices["a"].active_faults
    device, server = await world.connect()
    await fleet.links.begin(["a"], CUT_UP)
    await fleet.links.begin(["a"], CUT_BOTH)
    await fleet.links.end(["a"], CUT_BOTH)
    assert (faults.cut("up"), faults.cut("down")) == (True, False)
    assert await device.fate() == "reset"  # bytes to the device were lost
    await fleet.links.end(["a"], CUT_UP)
    assert not faults
    del server
    await world.echo("a")


async def test_a_restarted_gateway_gets_what_holds_and_its_count_goes_on(
    start: Start, fleets: MakeFleet
) -> None:
    fleet = fleets()
    first, second = await start(SHAPE), await start(SHAPE)
    await fleet.join(first)
    await first.connect()
    await fleet.links.begin(["a"], BLACKHOLE)
    assert (await fleet.links.measures(["a"]))["a"].struck == 1
    await fleet.add(second.gateway.config, second.ports)  # the same group: a successor
    assert second.gateway.devices["a"].active_faults.blackhole
    end = await second.dial()
    await end.send(b"lost")
    await second.echo("b")
    assert (await fleet.links.measures(["a"]))["a"].struck == 2
    await fleet.links.end(["a"], BLACKHOLE)
    assert not second.gateway.devices["a"].active_faults


@pytest.mark.system
async def test_a_gateway_that_was_stopped_for_longer_than_the_patience_is_connected_again(
    tmp_path: Path, fleets: MakeFleet
) -> None:
    fleet, ready = fleets(patience_s=0.2), tmp_path / "ready.json"
    credentials = tmp_path / "credentials.json"
    write_credentials(credentials, GATEWAY)
    config = GatewayProcess(
        group="phones",
        seed=7,
        devices=[GatewayDevice(client="a", shape=SHAPE)],
        upstream="127.0.0.1:9",
        ready=str(ready),
        credentials=str(credentials),
        lease_s=60.0,
    )
    gateway = subprocess.Popen([sys.executable, "-m", "muster.emulator.gateway"], stdin=-1)
    try:
        assert gateway.stdin is not None
        gateway.stdin.write(config.to_json().encode() + b"\n")
        gateway.stdin.close()
        await fleet.until(ready.exists)
        await fleet.add(config, Ports.from_json(ready.read_bytes()))
        fleet.network.watch()
        os.kill(gateway.pid, signal.SIGSTOP)
        await fleet.links.begin(["a"], LinkChange(rate_factor=0.5))  # after the patience
        assert await fleet.links.measures(["a"]) == {}
        await fleet.links.begin(["a"], BLACKHOLE)
        os.kill(gateway.pid, signal.SIGCONT)
        while "a" not in (seen := await fleet.links.measures(["a"])):
            await asyncio.sleep(0)
        # Both hold although the gateway heard of neither when they began.
        _, writer = await asyncio.open_connection("127.0.0.1", _port(ready))
        while not seen["a"].struck or "up" not in seen["a"].bps:
            seen = await fleet.links.measures(["a"])
        assert seen["a"].bps["up"] == pytest.approx(40e6, rel=0.05)
        writer.close()
    finally:
        gateway.kill()
        gateway.wait()


def _port(ready: Path) -> int:
    return Ports.from_json(ready.read_bytes()).devices["a"]
