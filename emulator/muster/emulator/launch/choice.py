"""The backends, by name."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from muster.common.clock import Clock, WallClock
from muster.emulator.credentials.issuing import certifier_of
from muster.emulator.launch import doctor
from muster.emulator.launch.backend import Backend, BackendName, Died, MakeBackend
from muster.emulator.launch.doctor import Finding, examine_machine
from muster.emulator.launch.processes import Processes
from muster.emulator.scenario.scenario import Scenario

Require = Callable[[Scenario], None]
"""Checks, before anything is made or started, whether a scenario can run. It raises ConfigError if
it cannot."""


Examine = Callable[[Scenario | None, Path | None], Sequence[Finding]]
"""Finds out what a scenario, or 10 devices, would have, given the data directory."""


class BackendKind(NamedTuple):
    """A kind of backend.

    Attributes:
        make: makes the backend of a run.
        require: checks whether a scenario can run.
        require_to_verify: checks whether `muster verify` can measure the links of a scenario.
        examine: finds out what a fleet would have.
    """

    make: MakeBackend
    require: Require
    require_to_verify: Require
    examine: Examine


def kind_of(name: BackendName) -> BackendKind:
    """The kind of backend with this name.

    Raises:
        ConfigError: what the backend needs is not installed.
    """
    match name:  # libraries of backends take a while to import
        case "docker":
            from muster.emulator.launch.docker import checks
            from muster.emulator.launch.docker.containers import Containers

            return BackendKind(
                Containers, checks.require, checks.require_to_verify, examine_machine
            )
        case "compose":
            from muster.emulator.launch.docker.compose_containers import ComposeContainers

            return kind_of("docker")._replace(make=ComposeContainers)
        case "ray":
            from muster.emulator.launch.ray import checks as cluster_checks

            return BackendKind(
                cluster_checks.ray_fleet,
                cluster_checks.require,
                cluster_checks.require_to_verify,
                cluster_checks.examine,
            )
        case "processes":
            return BackendKind(
                _processes, _require_processes, lambda scenario: None, examine_machine
            )


def _processes(scenario: Scenario, folder: Path, clock: Clock, died: Died) -> Backend:
    return Processes(
        folder,
        clock,
        died,
        spawn=scenario.launch.start == "spawn",
        writes_files=scenario.task.hosted,
    )


def _require_processes(scenario: Scenario) -> None:
    doctor.require(scenario)
    certifier_of(scenario.launch, required=False, clock=WallClock())
