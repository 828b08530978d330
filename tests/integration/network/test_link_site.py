"""What holds on links, and gateways that hang, heal themselves, die and come back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from muster.common.clock import WallClock
from muster.common.testing import ManualClock
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_site import LinkSite
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports, gateway_name
from muster.emulator.gateway.faults import Fault
from muster.emulator.links.network import GatewayFleet
from muster.emulator.links.shape import Shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.integration.network.conftest import Start, World

    from muster.common.events import Event
    from muster.emulator.launch.backend import Backend

SHAPE = Shape(up_bps=80e6, down_bps=80e6)
BLACKHOLE = LinkChange(faults=(Fault(fault="blackhole"),))
CUT_UP = LinkChange(faults=(Fault(fault="cut", direction="up"),))
CUT_BOTH = LinkChange(
    faults=(Fault(fault="cut", direction="up"), Fault(fault="cut", direction="down"))
)


class Programs:
    """A backend of which only the programs that are alive matter."""

    def __init__(self) -> None:
        self.alive: dict[str, object] = {}


class Fleet:
    """Gateways, and the links behind them as faults see them."""

    def __init__(self, patience_s: float = 10.0) -> None:
        self.programs = Programs()
        self.recorded: list[Event] = []
        backend = cast("Backend", self.programs)
        self.network = GatewayFleet(backend, WallClock(), self.recorded.append, patience_s)
        self.groups: dict[str, str] = {}
        self.site = LinkSite(self.network, self.groups, _Everywhere())

    async def add(self, config: GatewayProcess, ports: Ports) -> None:
        self.programs.alive[gateway_name(config.group)] = object()
        await self.network.add(config, ports)
        self.groups |= {f"{device.client}": config.group for device in config.devices}

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0)


class _Everywhere(dict[str, Shape]):
    def __missing__(self, client: str) -> Shape:
        return SHAPE


@pytest.fixture
async def fleets() -> AsyncIterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(**settings: Any) -> Fleet:
        made.append(Fleet(**settings))
        return made[-1]

    yield make
    for fleet in made:
        await fleet.network.close()


async def joined(fleet: Fleet, world: World) -> None:
    await fleet.add(world.gateway.config, world.ports)
    fleet.network.watch()


async def test_a_gateway_that_healed_itself_gets_what_still_holds(
    start: Start, fleets: Callable[..., Fleet]
) -> None:
    clock, fleet = ManualClock(), fleets()
    world = await start(SHAPE, control_clock=clock, lease_s=10.0)
    await joined(fleet, world)
    slower = LinkChange(rate_factor=0.5)
    await fleet.site.begin(["a", "b"], BLACKHOLE)
    await fleet.site.begin(["a"], slower)
    await fleet.site.begin(["c"], slower)
    a, b, c = world.gateway.devices.values()
    before = fleet.network.controller("phones")
    clock.advance(11.0)  # as if the gateway had been paused: its lease is over
    await fleet.until(lambda: fleet.network.controller("phones") is not before)
    await fleet.site.end(["b"], BLACKHOLE)
    await fleet.site.end(["c"], slower)
    await fleet.until(lambda: a.active_faults.blackhole)
    assert (a.shape.up_bps, c.shape.up_bps) == (40e6, 80e6)
    assert not b.active_faults
    await fleet.site.end(["a"], BLACKHOLE)
    await fleet.site.end(["a"], slower)
    assert (bool(a.active_faults), a.shape) == (False, SHAPE)


async def test_what_is_healed_while_a_gateway_is_away_does_not_come_back(
    start: Start, fleets: Callable[..., Fleet]
) -> None:
    fleet = fleets()
    world = await start(SHAPE)
    await joined(fleet, world)
    a, b, _ = world.gateway.devices.values()
    await fleet.site.begin(["a"], BLACKHOLE)
    await fleet.network.controller("phones").close()  # the connection is lost; the lease is not
    await fleet.site.end(["a"], BLACKHOLE)
    await fleet.site.begin(["b"], BLACKHOLE)
    await fleet.until(lambda: b.active_faults.blackhole)
    assert not a.active_faults


async def test_links_of_other_gateways_do_not_wait_for_one_that_is_gone(
    start: Start, fleets: Callable[..., Fleet]
) -> None:
    fleet = fleets()
    near = await start(SHAPE)
    gone = near.gateway.config.model_copy(
        update={"group": "gone", "devices": [GatewayDevice(client="x", shape=SHAPE)]}
    )
    await fleet.add(near.gateway.config, near.ports)
    await fleet.network.add(gone, Ports(host="127.0.0.1", control=1, devices={"x": 1}))
    fleet.groups["x"] = "gone"
    slower = LinkChange(rate_factor=0.25)
    await fleet.site.begin(["x", "a"], slower)
    assert near.gateway.devices["a"].shape.up_bps == 20e6
    assert set(await fleet.site.measures(["x", "a"])) == {"a"}
    await fleet.site.end(["x", "a"], slower)
    assert near.gateway.devices["a"].shape == SHAPE


async def test_of_cuts_that_overlap_each_direction_ends_with_its_last(
    start: Start, fleets: Callable[..., Fleet]
) -> None:
    fleet = fleets()
    world = await start(SHAPE)
    await joined(fleet, world)
    faults = world.gateway.devices["a"].active_faults
    device, server = await world.connect()
    await fleet.site.begin(["a"], CUT_UP)
    await fleet.site.begin(["a"], CUT_BOTH)
    await fleet.site.end(["a"], CUT_BOTH)
    assert (faults.cut("up"), faults.cut("down")) == (True, False)
    assert await device.fate() == "reset"  # bytes to the device were lost
    await fleet.site.end(["a"], CUT_UP)
    assert not faults
    del server
    await world.echo("a")


async def test_a_restarted_gateway_gets_what_holds_and_its_count_goes_on(
    start: Start, fleets: Callable[..., Fleet]
) -> None:
    fleet = fleets()
    first, second = await start(SHAPE), await start(SHAPE)
    await joined(fleet, first)
    await first.connect()
    await fleet.site.begin(["a"], BLACKHOLE)
    assert (await fleet.site.measures(["a"]))["a"].struck == 1
    await fleet.add(second.gateway.config, second.ports)  # the same group: a successor
    assert second.gateway.devices["a"].active_faults.blackhole
    end = await second.dial()
    await end.send(b"lost")
    await second.echo("b")
    assert (await fleet.site.measures(["a"]))["a"].struck == 2
    await fleet.site.end(["a"], BLACKHOLE)
    assert not second.gateway.devices["a"].active_faults


@pytest.mark.system
async def test_a_gateway_that_was_stopped_for_longer_than_the_patience_is_connected_again(
    tmp_path: Path, fleets: Callable[..., Fleet]
) -> None:
    fleet, ready = fleets(patience_s=0.2), tmp_path / "ready.json"
    config = GatewayProcess(
        group="phones",
        seed=7,
        devices=[GatewayDevice(client="a", shape=SHAPE)],
        upstream="127.0.0.1:9",
        ready=str(ready),
        controller_token="c0ffee",
        device_token="decaf0",
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
        await fleet.site.begin(["a"], LinkChange(rate_factor=0.5))  # after the patience
        assert await fleet.site.measures(["a"]) == {}
        await fleet.site.begin(["a"], BLACKHOLE)
        os.kill(gateway.pid, signal.SIGCONT)
        while "a" not in (seen := await fleet.site.measures(["a"])):
            await asyncio.sleep(0)
        # Both hold although the gateway heard of neither when they began.
        _, writer = await asyncio.open_connection("127.0.0.1", _port(ready))
        while not seen["a"].struck or seen["a"].rate_share is None:
            seen = await fleet.site.measures(["a"])
        assert seen["a"].rate_share == pytest.approx(0.5, rel=0.05)
        writer.close()
    finally:
        gateway.kill()
        gateway.wait()


def _port(ready: Path) -> int:
    return Ports.from_json(ready.read_bytes()).devices["a"]
