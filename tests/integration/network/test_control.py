"""The control port, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.network.conftest import DEVICE
from tests.integration.network.link_fleet import CONTROLLER

from muster.common.credentials import Credentials
from muster.common.errors import ConfigError, Interrupted, Unauthenticated, Unreachable
from muster.common.shared_lines import SharedLine, granted
from muster.common.testing import ManualClock, made_credentials
from muster.emulator.gateway.config import Ports
from muster.emulator.link_control.controller import Controller
from muster.emulator.links.shape import Shape, SharedState

if TYPE_CHECKING:
    from tests.integration.network.conftest import Start, World


class Talk:
    """Lines to a control port and back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def begin(cls, world: World, credentials: Credentials | None) -> Talk:
        talk = cls(*await asyncio.open_connection(world.ports.host, world.ports.control))
        if credentials is not None:
            talk.say(token=credentials.shown.hex())
            assert "ok" in await talk.hear()
        return talk

    def say(self, **line: object) -> None:
        self.writer.write(json.dumps(line).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(await self.reader.readline())
        return heard

    async def ask(self, **line: object) -> dict[str, Any]:
        self.say(**line)
        return await self.hear()

    async def contend(self, client: str, round: int, active: bool, of: int) -> dict[str, Any]:
        return await self.ask(do="contend", client=client, round=round, active=active, of=of)

    async def hang_up(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def capacities(stats: Mapping[str, Any]) -> tuple[float, float]:
    """Bytes that could have come down the shared link, and gone up from device a."""
    return stats["shared"]["down"]["capacity"], stats["devices"]["a"]["up"]["capacity"]


async def test_stats_tell_what_was_delivered_and_what_could_have_been(start: Start) -> None:
    world = await start(Shape(up_bps=8e6), SharedLine(down_bps=16e6))
    async with Controller(world.ports, CONTROLLER, world.clock) as controller:
        device, server = await world.connect()
        await device.send(bytes(1000))
        await server.receive(1000)
        stats = await controller.stats()
        a = stats["devices"]["a"]
        assert a["up"]["bytes"] == 1000
        assert 1000 <= a["up"]["capacity"]
        none = {"pieces": 0, "least_s": None, "quartile_s": None}
        assert a["down"] == {
            "bytes": 0,
            "capacity": None,
            "delays": none,
            "stalls": 0,
            "stalled_s": 0.0,
            "packets": 0.0,
        }
        assert a["connections"] == 1
        assert stats["shared"]["up"] == {"capacity": None}
        later = await controller.stats()
        elapsed = later["at"] - stats["at"]
        for before, after, rate in zip(
            capacities(stats), capacities(later), (2e6, 1e6), strict=True
        ):
            assert after - before == pytest.approx(rate * elapsed, rel=0.5, abs=2000)


async def test_a_link_is_set_and_set_back(start: Start) -> None:
    world = await start(Shape(rtt_s=0.002))
    async with Controller(world.ports, CONTROLLER, world.clock) as controller:
        await controller.set({"up_bps": 80e6, "loss": 0.01}, ["a"])
        assert world.gateway.devices["a"].shape == Shape(rtt_s=0.002, up_bps=80e6, loss=0.01)
        assert world.gateway.devices["b"].shape == Shape(rtt_s=0.002)
        await controller.set({"up_bps": None}, ["a", "b"])
        assert world.gateway.devices["a"].shape == Shape(rtt_s=0.002, loss=0.01)
        await controller.set(None)
        assert world.gateway.devices["a"].shape == Shape(rtt_s=0.002)
        await controller.set_shared(SharedState(most_down_bps=1e6))
        assert world.gateway.shapers["down"].shared.mean == 125_000
        await world.echo("a")


async def test_new_connections_go_to_the_server_that_was_named_last(start: Start) -> None:
    world, other = await start(), await start()
    async with Controller(world.ports, CONTROLLER, world.clock) as controller:
        await controller.upstream(":".join(map(str, other.gateway.upstream)))
        device = await world.dial()
        await device.send(b"here")
        assert await (await other.accepted.get()).receive(4) == b"here"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"do": "fault", "clients": ["x"], "fault": "offline"}, "no client 'x'"),
        ({"do": "fault", "fault": "fire"}, "fault"),
        ({"do": "fault", "fault": "cut"}, "cut needs direction"),
        ({"do": "fault", "fault": "offline", "direction": "up"}, "offline has no direction"),
        ({"do": "fault", "fault": "limit", "direction": "up"}, "limit needs bytes"),
        ({"do": "fault", "fault": "limit", "direction": "up", "bytes": 0}, "more than 0"),
        ({"do": "fault", "fault": "reset", "for_s": 1.0}, "reset happens once"),
        ({"do": "heal", "clients": ["a", "x"]}, "no client 'x'"),
        ({"do": "set", "clients": ["a", "x"], "shape": {"up_bps": 1.0}}, "no client 'x'"),
        ({"do": "set", "shape": {"up_bps": -1.0}}, "shape.up_bps"),
        ({"do": "set", "shape": {"up_bps": "fast"}}, "shape.up_bps"),
        ({"do": "set", "shape": {"upbps": 1.0}}, "unknown key"),
        ({"do": "set", "shape": {"loss": 0.9}}, "shape.loss"),
        ({"do": "set", "shape": {"trace_up": "/nowhere"}}, "/nowhere cannot be read"),
        ({"do": "set_shared", "most_down_bps": 0.0}, "down_bps"),
        ({"do": "upstream", "address": "nowhere"}, "host:port"),
        ({"do": "dance"}, "do: expected one of ping, stats"),
        ({"do": "contend"}, "do: expected one of ping, stats"),
        ({}, "do: expected one of"),
    ],
)
async def test_what_cannot_be_is_refused_and_changes_nothing(
    start: Start, request_: dict[str, Any], says: str
) -> None:
    world = await start()
    talk = await Talk.begin(world, CONTROLLER)
    told = await talk.ask(**request_)
    assert says in told["error"]
    assert "\n" not in told["error"]
    for device in world.gateway.devices.values():
        assert device.shape == Shape()
        assert not device.active_faults
        assert device.plain == {"up": True, "down": True}
    assert "ok" in await talk.ask(do="ping")
    await talk.hang_up()


async def test_nonsense_is_refused(start: Start) -> None:
    world = await start()
    talk = await Talk.begin(world, CONTROLLER)
    for line in (b"nonsense\n", b"[1]\n", b"\n", b"\xff\n"):
        talk.writer.write(line)
        assert "JSON object" in (await talk.hear())["error"]
    await talk.hang_up()


async def test_who_shows_no_token_is_sent_away(start: Start) -> None:
    world = await start()
    for hello in ({"token": "wrong"}, {"token": "00"}, {"do": "stats"}):
        talk = await Talk.begin(world, None)
        assert "error" in await talk.ask(**hello)
        assert await talk.reader.read() == b""
        await talk.hang_up()
    stranger = made_credentials("supervisor", byte=9)
    for credentials in (stranger, DEVICE):
        with pytest.raises(Unauthenticated):
            await Controller.connect(world.ports, credentials, world.clock)


async def test_a_device_cannot_change_anything(start: Start) -> None:
    world = await start()
    talk = await Talk.begin(world, DEVICE)
    assert "do: expected one of contend" in (await talk.ask(do="fault", fault="offline"))["error"]
    await talk.hang_up()


async def test_a_controller_says_what_is_wrong(start: Start) -> None:
    world = await start()
    nobody = Ports(host="127.0.0.1", control=1, devices={})
    with pytest.raises(Unreachable):
        await Controller.connect(nobody, CONTROLLER, world.clock)
    controller = await Controller.connect(world.ports, CONTROLLER, world.clock)
    with pytest.raises(ConfigError, match="no client 'x'"):
        await controller.fault(["x"], "offline")
    await controller.ping()
    await controller.close()
    with pytest.raises(Interrupted):
        await controller.ping()


async def test_a_gateway_whose_controller_is_silent_heals_itself(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    world = await start(Shape(rtt_s=0.002), control_clock=clock, lease_s=10.0)
    talk = await Talk.begin(world, CONTROLLER)
    await talk.ask(do="fault", clients=["a"], fault="offline")
    await talk.ask(do="set", clients=["b"], shape={"loss": 0.1})
    await talk.ask(do="set_shared", most_up_bps=1e6)
    clock.advance(9.0)
    await talk.ask(do="ping")
    clock.advance(9.0)
    await world.echo("c")
    assert world.gateway.devices["a"].active_faults.offline
    clock.advance(1.0)
    await world.echo("c")
    assert not world.gateway.devices["a"].active_faults
    assert world.gateway.devices["b"].shape == Shape(rtt_s=0.002)
    assert world.gateway.shapers["up"].shared.mean == float("inf")
    assert "no controller sent a request for 10 s" in caplog.text
    await talk.hang_up()


async def test_a_caller_that_is_cancelled_leaves_the_connection_in_order(start: Start) -> None:
    world = await start()
    async with Controller(world.ports, CONTROLLER, world.clock) as controller:
        asking = asyncio.create_task(controller.stats())
        await asyncio.sleep(0)  # it begins
        asking.cancel()
        assert await controller.ping() == 10.0
        assert "devices" in await controller.stats()


async def test_a_controller_keeps_the_lease_by_itself(start: Start) -> None:
    clock = ManualClock()
    world = await start(control_clock=clock, lease_s=10.0)
    controller = await Controller.connect(world.ports, CONTROLLER, clock)
    await controller.fault(["a"], "offline")
    for _ in range(20):
        clock.advance(2.5)
        await world.echo("c")
        await world.echo("c")
    assert world.gateway.devices["a"].active_faults.offline
    await controller.close()


async def test_slots_are_granted_when_all_have_spoken(start: Start) -> None:
    shared = SharedLine(slots=1, overflow="subset")
    world = await start(shared=shared)
    both, other = await Talk.begin(world, DEVICE), await Talk.begin(world, DEVICE)
    assert await both.contend("c", 4, False, 3) == {"round": 4, "client": "c", "granted": False}
    both.say(do="contend", client="a", round=4, active=True, of=3)
    last = await other.contend("b", 4, True, 3)
    first = await both.hear()
    got = {told["client"] for told in (first, last) if told["granted"]}
    assert got == granted(shared, 7, "phones", 4, {"a", "b"})
    # Who comes again, over another connection and with another count, hears the same.
    assert (await other.contend("a", 4, True, 2))["granted"] == first["granted"]
    await both.hang_up()
    await other.hang_up()


async def test_a_gateway_that_is_started_again_knows_what_devices_have_said(
    start: Start, tmp_path: Path
) -> None:
    shared, words = SharedLine(slots=1, overflow="subset"), str(tmp_path / "words.jsonl")
    granted_of_4 = granted(shared, 7, "phones", 4, {"a", "b"})
    world = await start(shared=shared, words=words)
    talk = await Talk.begin(world, DEVICE)
    assert (await talk.contend("c", 4, False, 3))["granted"] is False
    talk.say(do="contend", client="a", round=4, active=True, of=3)
    assert (await talk.ask(do="take", client="x", round=4))["error"]  # so it has heard of a
    # c has its answer and says nothing more; a asks again.
    world = await start(shared=shared, words=words)
    one, other = await Talk.begin(world, DEVICE), await Talk.begin(world, DEVICE)
    one.say(do="contend", client="a", round=4, active=True, of=3)
    assert (await other.contend("b", 4, True, 3))["granted"] == ("b" in granted_of_4)
    assert (await one.hear())["granted"] == ("a" in granted_of_4)
    # All have spoken, and only b has not got its answer.
    world = await start(shared=shared, words=words)
    last = await Talk.begin(world, DEVICE)
    assert (await last.contend("b", 4, True, 3))["granted"] == ("b" in granted_of_4)
    for each in (talk, one, other, last):
        await each.hang_up()


async def test_a_broken_connection_gives_its_slot_back(start: Start) -> None:
    world = await start(shared=SharedLine(slots=1, overflow="queue"))
    first, second, third = [await Talk.begin(world, DEVICE) for _ in range(3)]
    assert (await first.contend("a", 1, True, 3))["granted"] is True
    assert await first.ask(do="take", client="a", round=1) == {
        "round": 1, "client": "a", "taken": True,
    }  # fmt: skip
    assert (await first.ask(do="take", client="a", round=1))["taken"]
    second.say(do="take", client="b", round=1)
    assert (await second.contend("b", 1, True, 3))["granted"] is True  # and not yet its turn
    third.say(do="take", client="c", round=1)
    assert (await third.contend("c", 1, True, 3))["granted"] is True
    await second.hang_up()  # forgets its waiting
    await first.hang_up()
    assert await third.hear() == {"round": 1, "client": "c", "taken": True}
    assert (await third.ask(do="give", client="c", round=1))["given"]
    await third.hang_up()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"do": "contend", "client": "x", "round": 1, "active": True, "of": 1}, "own devices"),
        ({"do": "contend", "client": "a", "round": 1, "active": True, "of": 4}, "has 3"),
        ({"do": "contend", "client": "a", "round": -1, "active": True, "of": 1}, "round"),
        ({"do": "take", "client": "a"}, "round: required"),
    ],
)
async def test_a_device_that_asks_nonsense_is_told(
    start: Start, line: dict[str, Any], says: str
) -> None:
    world = await start()
    talk = await Talk.begin(world, DEVICE)
    assert says in (await talk.ask(**line))["error"]
    await talk.hang_up()
