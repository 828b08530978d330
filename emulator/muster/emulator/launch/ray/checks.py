"""Checks, before anything starts, whether a scenario can run on a Ray cluster."""

from pathlib import Path

from muster.common.clock import Clock, WallClock
from muster.common.errors import ConfigError
from muster.emulator.credentials.issuing import certifier_of
from muster.emulator.fleet import server_view
from muster.emulator.launch.backend import Died
from muster.emulator.launch.ray.cluster import RayCluster
from muster.emulator.launch.ray.demand import bundles_of
from muster.emulator.launch.ray.fleet import RayFleet
from muster.emulator.launch.ray.placing import choose, place
from muster.emulator.runs import doctor
from muster.emulator.scenario.scenario import Scenario


def ray_fleet(scenario: Scenario, folder: Path, clock: Clock, died: Died) -> RayFleet:
    """The backend of a run on the Ray cluster of which this machine is a node."""
    return RayFleet(scenario, folder, clock, died, RayCluster())


def require(scenario: Scenario) -> None:
    """Check, before anything starts, that a scenario can run on the cluster.

    Raises:
        ConfigError: it cannot; the message says what is missing.
    """
    scenario.task.check()
    server_view.require(scenario)
    doctor.require_room(doctor.FleetSize.of(scenario))
    doctor.require_port(scenario.server.port)
    certifier_of(scenario.launch, required=True, clock=WallClock())
    bundles = bundles_of(scenario)
    nodes = choose(RayCluster().nodes(), scenario.launch.cluster.nodes, bundles)
    place(bundles, nodes, {})


def require_to_verify(scenario: Scenario) -> None:
    """Refuse `muster verify`, whose files are on this machine only.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        "muster verify measures links on this machine or in containers; to measure them on a "
        "cluster, set verify = true in the scenario, which measures them before the run"
    )
