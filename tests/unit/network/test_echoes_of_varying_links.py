"""Round trips that links imply, against gateways' own shapers in invented time."""

import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster.common.rates.recording import DIRECTIONS
from muster.common.shared_lines import SharedLine
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.gateway.device_link import DeviceLink
from muster.emulator.gateway.rates import Unlimited
from muster.emulator.gateway.shaping import Shaper
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.links.settings import LINKS, LinkSettings
from muster.emulator.links.shape import Shape, SharedState
from muster.emulator.verification.echo_model import sent_echoes
from muster.emulator.verification.judging import (
    RoundTrips,
    expected_rtt_s,
    grpc_rtt_row,
    judge_rate,
    judge_rtt,
)
from muster.emulator.verification.measuring import (
    LinkMeasurement,
    MeasuredLink,
    Step,
    round_trips,
)
from muster.emulator.verification.result import Row, Tolerances

CLIENT = "g-0"
AHEAD_S = 1000.0  # the gateway's clock is so far ahead of this machine's


class World:
    """A gateway with one device, a machine that is a little late, and the clock of both.

    Args:
        real: the link that the gateway emulates, which should be `shape`.
    """

    def __init__(self, shape: Shape, seed: int, real: Shape | None = None) -> None:
        self._random = random.Random(seed)
        self._now = 50 * self._random.random()
        device = GatewayDevice(client=CLIENT, shape=shape)
        config = GatewayProcess(
            group="g",
            seed=seed,
            devices=[device],
            shared=SharedLine(),
            upstream="127.0.0.1:9",
            ready="",
            credentials="",
        )
        ports = Ports(host="127.0.0.1", control=1, devices={CLIENT: 1})
        self.line = MeasuredLink(RunningGateway(config, ports, self), CLIENT, shape)
        self._shapers = {each: Shaper(Unlimited(), seed) for each in DIRECTIONS}
        real_device = GatewayDevice(client=CLIENT, shape=real or shape)
        self._device = DeviceLink(real_device, seed, self._shapers)
        self._flows = {
            each: self._shapers[each].flow(self._device.lanes[each], each, 1) for each in DIRECTIONS
        }

    def monotonic(self) -> float:
        return self._now

    now = monotonic

    def pause(self, seconds: float) -> None:
        raise AssertionError("nothing blocks the loop")

    async def sleep_until(self, instant: float) -> None:
        raise AssertionError("nothing sleeps")

    async def set_shared(self, state: SharedState) -> None:
        raise AssertionError("nothing is set here")

    async def upstream(self, address: str) -> None:
        raise AssertionError("nothing is set here")

    def _late(self) -> None:
        self._now += 0.001 * self._random.random()

    async def stats(self, clients: Collection[str] | None = None) -> Mapping[str, Any]:
        self._late()
        at = self._now + AHEAD_S
        measured = self._device.stats(self._now)
        self._late()
        return {"at": at, "began": AHEAD_S, "devices": {CLIENT: measured}}

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def round_trip_s(self, patience_s: float) -> float:
        began = self._now
        for each in DIRECTIONS:
            self._late()
            shaper = self._shapers[each]
            shaper.arrive(self._flows[each], 16, self._now)
            due: list[Any] = []
            while not due:
                self._now = max(self._now, shaper.next())
                due, _ = shaper.advance(self._now)
        self._late()
        assert self._now - began <= patience_s
        return self._now - began

    async def row(self) -> Row:
        expected_s = expected_rtt_s(self.line)
        trips, samples = await round_trips(self.line, self, expected_s, 5.0, self)
        middle = sorted(trips)[(len(trips) - 1) // 2] + sorted(trips)[len(trips) // 2]
        sent = list(sent_echoes(samples, CLIENT))
        return judge_rtt(self.line, RoundTrips(middle / 2, len(trips), sent=sent), Tolerances())


GAPS = {
    "seldom": range(40, 4001, 40),
    "long gap": [*range(1, 1001), 9000],
    "irregular": [1, 2, 3, 30, 70, 71, 150, 230, 231, 300, 420, 430, 431, 432, 500],
}


def shapes(tmp_path: Path) -> dict[str, Shape]:
    """A link of every profile and of every kind of variation."""
    tables: dict[str, dict[str, Any]] = {
        name: {"profile": name} for name, link in LINKS.items() if "jitter" in link.values
    }
    for name, lines in GAPS.items():
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines))
        tables[name] = {"rtt": "40 ms", "trace": str(path), "trace_up": str(path)}
    tables["gap and jitter"] = {**tables["irregular"], "jitter": "10 ms"}
    tables["slow and fading"] = {"up": "1 kbit/s", "down": "2 kbit/s", "fading": 1.5}
    tables["loss"] = {"rtt": "40 ms", "loss": 0.05}
    tables["half is lost"] = {"rtt": "40 ms", "loss": 0.5}
    tables["loss on a trace"] = {**tables["irregular"], "loss": 0.3}
    tables["loss and fading"] = {"profile": "edge", "loss": 0.4}
    return {
        name: LinkSettings.model_validate(table).shapes_of(7, [CLIENT], [0])[0]
        for name, table in tables.items()
    }


async def test_links_of_every_kind_are_as_asked(tmp_path: Path) -> None:
    refused: dict[str, int] = {}
    for name, shape in shapes(tmp_path).items():
        for seed in range(20):
            row = await World(shape, seed).row()
            if row.ok is False:
                refused[name] = refused.get(name, 0) + 1
    # Jitter is judged by chance, within three standard errors.
    assert all(count <= 1 for count in refused.values()), refused
    assert not refused.keys() & {*GAPS, "loss", "half is lost", "slow and fading"}, refused


@pytest.mark.parametrize("name", ["seldom", "loss", "slow and fading"])
async def test_a_link_that_is_longer_than_asked_is_refused(tmp_path: Path, name: str) -> None:
    shape = shapes(tmp_path)[name]
    longer = shape.model_copy(update={"rtt_s": shape.rtt_s + 0.3})
    rows = [await World(shape, seed, real=longer).row() for seed in range(10)]
    assert [row.ok for row in rows] == [False] * 10


async def test_what_grpc_needs_is_shown_beside_what_the_link_implied(tmp_path: Path) -> None:
    world = World(shapes(tmp_path)["seldom"], 1)
    trips, samples = await round_trips(world.line, world, 0.04, 5.0, world)
    found = RoundTrips(trips[0], len(trips), sent=list(sent_echoes(samples, CLIENT)))
    # An echo waits for a millisecond in 40 each way, with a delay of 20 ms after each: 80 ms.
    assert grpc_rtt_row(world.line, found).asked == pytest.approx(0.08, abs=0.004)


async def test_a_steady_link_asks_its_gateway_nothing() -> None:
    world = World(Shape(rtt_s=0.04, up_bps=1e6), 1)
    _, samples = await round_trips(world.line, world, 0.04, 1.0, world)
    assert samples == []


def rate_row(shape: Shape, allowed_bps: float, received_bps: float) -> Row:
    line = replace(World(shape, 1).line, shape=shape)
    found = LinkMeasurement([Step(5.0, received_bps, allowed_bps)], broken=False)
    return judge_rate(line, "down", found, Tolerances())


def test_a_gap_of_a_trace_allows_nothing_that_could_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "gap"
    path.write_text("".join(f"{line}\n" for line in [*range(1, 1001), 60_000]))
    shape = Shape(trace_down=str(path))
    silent = rate_row(shape, 0.0, 0.0)
    assert (silent.asked, silent.ok) == (None, None)
    assert "measure for longer" in silent.note
    assert rate_row(shape, 1e6, 1.0e6).ok
    assert not rate_row(shape, 1e6, 0.9e6).ok


def test_a_slice_at_the_edge_of_the_interval_is_no_deviation(tmp_path: Path) -> None:
    # 1500 bytes each 4 s: 3000 bit/s. A slice has at least 512 bytes.
    path = tmp_path / "seldom"
    path.write_text("4000\n")
    shape = Shape(trace_down=str(path))
    assert rate_row(shape, 2400.0, 2400.0 + 8 * 512 / 5).ok
    assert not rate_row(shape, 2400.0, 2400.0 + 8 * 1024 / 5).ok
