"""Devices that come and go: neither end keeps anything of a connection that is over."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import torch
from tests.integration.conftest import FLEET
from torch import Tensor, nn

from muster.client.availability import DeviceBatch
from muster.client.availability.contract import Availability, AvailabilityProcess, StepContext
from muster.client.connection.attendance import Attendance
from muster.client.life.participation import ParticipationSettings
from muster.client.life.settings import ClockSettings, Life, PackMember
from muster.client.processes.config import PackProcess
from muster.client.processes.program import Pack
from muster.client.training.settings import Training
from muster.common.credentials import write_credentials
from muster.common.seeds import BoolArray, FloatArray
from muster.common.testing import ManualClock
from muster.tasks.task import Examples, OpenTask

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

STEP_S = 3600.0
COMINGS = 40
"""How often a device comes; each time it opens a connection, of two sockets in this process."""

SPARE = 10
"""Sockets that may be on their way out: gRPC closes them in threads of its own."""


class FourParameters(OpenTask):
    """The model of `world`, and ten examples for each of its clients."""

    examples = [10, 10]  # noqa: RUF012

    def client(self, index: int) -> Examples:
        return Examples(np.zeros((10, 4), np.float32), np.zeros(10, np.float32))

    def test(self) -> Examples:
        return self.client(0)

    def module(self) -> nn.Module:
        module = nn.Module()
        module.w = nn.Parameter(torch.zeros(4))
        return module

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.mean()


class Alternating(Availability):
    """Devices are available in every other step, the first included."""

    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        return _Alternating(cast)


class _Alternating(AvailabilityProcess):
    def on(self, scene: StepContext) -> BoolArray:
        return np.array([scene.step % 2 == 0])

    def chance(self, scene: StepContext) -> FloatArray:
        return np.array([0.5])


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage in cycles is collected during the test: what is kept is kept."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def sockets() -> int:
    """Sockets that this process holds, also those whose connection is over."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += os.readlink(descriptor).startswith("socket:")
    return found


def pack_of(world: World, folder: Path, clock: ManualClock, **life: Any) -> Pack:
    """The device a of a world; it declines every call."""
    credentials = folder / "credentials.json"
    write_credentials(credentials, FLEET)
    config = PackProcess(
        name="a",
        devices=[PackMember(client="a", index=0)],
        life=Life(
            group="g",
            size=2,
            step_s=STEP_S,
            participation=ParticipationSettings(willing=0.0),
            **life,
        ),
        clock=ClockSettings(kind="wall", round_s=STEP_S),
        seed=1,
        population=2,
        task="{}",
        address=f"127.0.0.1:{world.port}",
        credentials=str(credentials),
        folder=str(folder),
    )
    return Pack(config, FourParameters(), clock)


@asynccontextmanager
async def living(pack: Pack) -> AsyncIterator[None]:
    """The pack lives until the end of the block; what ends it before fails the test."""
    async with asyncio.TaskGroup() as group:
        life = group.create_task(pack.live())
        yield
        life.cancel()


async def until_times(world: World, times: int, event: str) -> None:
    """Wait until something has happened so often that concerns device a."""

    def count() -> int:
        return sum(e["event"] == event and e.get("client", "a") == "a" for e in world.events)

    async with world.happened:
        await world.happened.wait_for(lambda: count() >= times)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("absence", ["close", "silent"])
async def test_a_device_that_comes_and_goes_leaves_no_connection_behind(
    world: MakeWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    absence: Literal["close", "silent"],
) -> None:
    w = await world(
        clock="wall",
        deadline_s=STEP_S,
        heartbeat_s=1000 * STEP_S,
        training=Training(learning_rate=0.1).to_json(),
    )
    await w.attend("b")  # and says nothing, so that the round stays open
    silent = asyncio.Event()

    fall = Attendance.fall_silent

    async def fall_silent(attendance: Attendance) -> None:
        await fall(attendance)
        silent.set()

    monkeypatch.setattr(Attendance, "fall_silent", fall_silent)
    clock, availability = ManualClock(), Alternating(kind="alternating", absence=absence)
    async with living(pack_of(w, tmp_path / "devices", clock, availability=availability)):
        await until_times(w, 1, "declined")
        before = sockets()
        for times in range(1, COMINGS):
            clock.advance(STEP_S)
            if absence == "silent":  # it keeps its connection until it comes back
                await silent.wait()
                silent.clear()
            else:
                await until_times(w, times, "left")
            clock.advance(STEP_S)
            await until_times(w, times + 1, "attended")
        assert sockets() <= before + SPARE
