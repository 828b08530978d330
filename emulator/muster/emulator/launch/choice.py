"""The backends, by name."""

from pathlib import Path

from muster.common.clock import Clock
from muster.emulator.launch.backend import Backend, BackendName, Died, MakeBackend
from muster.emulator.launch.processes import Processes
from muster.emulator.scenario.scenario import Scenario


def backend_of(name: BackendName) -> MakeBackend:
    """The function that makes a backend of this name."""
    if name == "docker":
        from muster.emulator.launch.docker.containers import (
            Containers,  # Docker's SDK takes a while
        )

        return Containers
    return _processes


def _processes(scenario: Scenario, folder: Path, clock: Clock, died: Died) -> Backend:
    return Processes(folder, clock, died, spawn=scenario.launch.start == "spawn")
