"""What the supervisor makes of deaths, with a backend that starts nothing."""

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from muster.client.processes.config import NurseryProcess, PackProcess
from muster.common.clock import Clock, WallClock
from muster.common.config import validate
from muster.common.errors import LaunchFailed, RunFailed
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.gateway.config import GatewayProcess, Ports
from muster.emulator.launch.backend import Died, EndedBeforeReady, Program, ProgramPauses
from muster.emulator.launch.pausing import Pauses
from muster.emulator.run_folder.folder import new_run_folder
from muster.emulator.runs.supervisor import Supervisor
from muster.emulator.scenario.scenario import Scenario
from muster.server.settings.process import ServerProcess

PREPARED = {"examples": [10, 10], "schema": [{"name": "w", "shape": [4]}]}


class Backend:
    """Pretends to start programs.

    Attributes:
        deaths: by program, with which statuses it dies before it is ready, start by start; None: it
            never becomes ready.
        started: what was started, in order.
        died: tells the supervisor of a death.
    """

    isolates = False
    metrics_host = "127.0.0.1"
    encrypts = False
    folders = DeviceFolders("devices", "credentials")
    here = "127.0.0.1"

    def __init__(self, deaths: Mapping[str, list[int | None]]) -> None:
        self.deaths = {name: list(statuses) for name, statuses in deaths.items()}
        self.started: list[str] = []
        self.alive: dict[str, Program] = {}
        self.placeable: dict[str, int] = {}
        self.died: Died
        self.happened = asyncio.Event()
        self.ports: list[int] = []
        self.causes: dict[str, str] = {}
        self.folder: Path
        self.pauses: ProgramPauses

    def made(self, scenario: Scenario, folder: Path, clock: Clock, died: Died) -> "Backend":
        self.folder, self.died, self.pauses = folder, died, Pauses(clock)
        return self

    async def start(self, name: str) -> None:
        self.started.append(name)
        self.happened.set()
        if self.deaths.get(name):
            status = self.deaths[name].pop(0)
            if status is None:
                await asyncio.get_running_loop().create_future()
            raise EndedBeforeReady(name, status or 0, "")

    async def times(self, number: int, name: str) -> None:
        """Return when a program has been started so often."""
        while self.started.count(name) < number:
            assert "close" not in self.started, "the run has ended"
            self.happened.clear()
            await self.happened.wait()

    def reachable_ports(self, group: str, ports: Ports) -> Ports:
        return ports

    def with_addresses(self, server: ServerProcess) -> ServerProcess:
        return server

    async def load_server(self) -> None:
        pass

    async def start_nursery(self, config: NurseryProcess) -> dict[str, Any]:
        await self.start("nursery")
        return PREPARED

    async def start_gateway(self, config: GatewayProcess) -> Ports:
        raise NotImplementedError

    async def start_evaluation(self) -> None:
        self.started.append("evaluation")

    async def start_server(self) -> str:
        self.ports.append(json.loads((self.folder / "setup/server.json").read_text())["port"])
        await self.start("server")
        return "127.0.0.1:7123"

    async def start_packs(self, configs: Sequence[PackProcess]) -> None:
        for config in configs:
            await self.start(config.name)

    async def close(self) -> None:
        self.started.append("close")
        self.happened.set()

    def cause_of(self, name: str) -> str:
        return self.causes.get(name, "")

    def last_lines(self, name: str) -> str:
        return ". No lines"


class SignalledProgram:
    """A program that only remembers its signals."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)

    @property
    def identity(self) -> Mapping[str, Any]:
        return {}

    def is_paused(self) -> bool:
        return False

    def use(self) -> None:
        return None


Make = Callable[..., tuple[Supervisor, Backend]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(restarts: int, **deaths: list[int | None]) -> tuple[Supervisor, Backend]:
        values = {
            "name": "test",
            "task": {"name": "linear", "dimension": 3},
            "server": {"rounds": 1},
            "groups": [{"name": "dev", "count": 2}],
            "launch": {"restarts": restarts, "own_core": False},
        }
        backend, scenario = Backend(deaths), validate(Scenario, values, "test")
        with new_run_folder("test", tmp_path / "run", scenario.to_toml()) as folder:
            pass
        supervisor = Supervisor(
            scenario,
            folder,
            WallClock(),
            lambda event: None,
            backend.made,
        )
        return supervisor, backend

    return make


def events(supervisor: Supervisor) -> list[tuple[str, str]]:
    lines = (supervisor.folder / "journal.jsonl").read_text().splitlines()
    return [(event["event"], event["process"]) for event in map(json.loads, lines)]


def end_well(supervisor: Supervisor, backend: Backend) -> None:
    """The server says that the run is over, and everybody ends."""
    with open(supervisor.folder / "journal.jsonl", "a") as journal:
        journal.write('{"event":"ended","process":"server","status":"completed"}\n')
    backend.died("server", 0)


@pytest.mark.parametrize("name", ["nursery", "server"])
async def test_a_program_that_dies_while_it_starts_uses_up_restarts(make: Make, name: str) -> None:
    supervisor, backend = make(2, **{name: [-9, 1]})
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    end_well(supervisor, backend)
    await running
    assert backend.started.count(name) == 3
    mine = [event for event, process in events(supervisor) if process == name]
    assert mine[:3] == ["died", "died", "restarted"]


async def test_a_program_that_dies_too_often_while_it_starts_ends_the_run(make: Make) -> None:
    supervisor, backend = make(2, server=[-9, -9, -15])
    with pytest.raises(LaunchFailed, match=r"server ended unexpectedly by signal 15\. No lines\n"):
        await supervisor.run()
    assert backend.started == ["nursery", "server", "server", "server", "close"]


@pytest.mark.parametrize("removed", ["journal.jsonl", "."])
async def test_a_run_whose_files_were_removed_says_so(make: Make, removed: str) -> None:
    supervisor, backend = make(5)
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    gone = supervisor.folder / removed
    gone.unlink() if gone.is_file() else shutil.rmtree(gone)
    backend.died("dev-0000", 0)
    with pytest.raises(RunFailed, match="was removed while the run was going on"):
        await running


async def test_a_server_that_dies_again_while_it_starts_again_comes_back(make: Make) -> None:
    supervisor, backend = make(3)
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    backend.deaths["server"] = [-9, -9]
    backend.died("server", -9)
    await backend.times(4, "server")
    end_well(supervisor, backend)
    await running
    # It comes back where devices know it to be.
    assert backend.ports == [0, 7123, 7123, 7123]


async def test_deaths_before_and_after_a_program_is_ready_use_up_the_same_restarts(
    make: Make,
) -> None:
    supervisor, backend = make(2, server=[-9])
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    backend.died("dev-0000", 1)
    await backend.times(2, "dev-0000")
    backend.died("dev-0001", 1)
    with pytest.raises(LaunchFailed, match="dev-0001 ended unexpectedly with status 1"):
        await running


async def test_the_cause_of_a_death_is_told_where_the_system_knows_it(make: Make) -> None:
    supervisor, backend = make(0)
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    backend.causes["dev-0001"] = "out of memory"
    backend.died("dev-0001", -9)
    with pytest.raises(LaunchFailed, match=r"dev-0001 ended .* by signal 9 \(out of memory\)\."):
        await running
    lines = (supervisor.folder / "journal.jsonl").read_text().splitlines()
    (died,) = [line for line in map(json.loads, lines) if line["event"] == "died"]
    assert (died["status"], died["cause"]) == (-9, "out of memory")


async def test_a_nursery_that_dies_with_its_devices_ends_the_run(make: Make) -> None:
    supervisor, backend = make(5)
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    backend.died("nursery", -9)
    with pytest.raises(LaunchFailed, match="nursery ended unexpectedly by signal 9"):
        await running


async def test_an_evaluation_that_is_a_program_of_its_own_is_started_again(make: Make) -> None:
    supervisor, backend = make(1)
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    backend.died("evaluation", -9)
    backend.died("server", 0)  # of a run that has not ended: it uses up a restart, and none is left
    with pytest.raises(LaunchFailed, match="server ended unexpectedly with status 0"):
        await running
    assert backend.started.count("evaluation") == 1


async def test_a_run_that_is_stopped_while_its_server_starts_again_ends_at_once(make: Make) -> None:
    supervisor, backend = make(5)
    running = asyncio.create_task(supervisor.run())
    await backend.times(1, "dev-0001")
    backend.deaths["server"] = [None]
    backend.died("server", -9)
    await backend.times(2, "server")
    server = backend.alive["server"] = SignalledProgram()
    supervisor.stop()
    with pytest.raises(RunFailed, match="stopped while the server started again"):
        await running
    assert not server.signals
