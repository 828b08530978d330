"""Checks, before anything starts, whether a scenario can run on a Ray cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.common.clock import Clock, WallClock
from muster.common.errors import ConfigError
from muster.emulator.credentials.issuing import certifier_of
from muster.emulator.launch import doctor
from muster.emulator.launch.backend import Died
from muster.emulator.launch.doctor import Finding, FleetSize
from muster.emulator.launch.ray.cluster import RayCluster
from muster.emulator.launch.ray.demand import bundles_of
from muster.emulator.launch.ray.fleet import RayFleet
from muster.emulator.launch.ray.placing import (
    GPU,
    Bundle,
    Node,
    choose,
    described,
    place,
    require_server_node,
)
from muster.emulator.planning import server_view
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Launch


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
    doctor.require_room(FleetSize.of(scenario))
    doctor.require_metrics(scenario)
    certifier_of(scenario.launch, required=True, clock=WallClock())
    cluster = RayCluster()
    doctor.require_ports(scenario, cluster.address)
    nodes = cluster.nodes()
    require_server_node(scenario.launch.cluster.server_labels, cluster.node, nodes)
    _placed(nodes, scenario)


def examine(scenario: Scenario | None, data: Path | None) -> Sequence[Finding]:
    """Say what every node of the cluster can carry, and whether the cluster can carry the fleet of
    a scenario. The server is on this machine."""
    launch = Launch() if scenario is None else scenario.launch
    cluster = RayCluster()
    nodes = cluster.nodes()
    findings = [doctor.examine_files(FleetSize.of(scenario)), doctor.examine_data(data)]
    findings += [_examine_node(node, launch) for node in nodes]
    if scenario is not None:
        findings.append(_examine_cluster(nodes, scenario))
    if launch.cluster.server_labels:
        findings.append(_examine_server(launch, cluster.node, nodes))
    return findings


def _examine_node(node: Node, launch: Launch) -> Finding:
    each = launch.cluster.resources
    has = {name: node.resources.get(name, 0.0) for name in each}
    room = min((int(has[name] / each[name]) for name in each), default=0)
    found = f"{described(has)}: room for {room:,} processes of devices with {described(each)} each"
    if gpus := int(node.resources.get(GPU, 0)):
        found += f"; {gpus} GPU: room for {gpus * launch.devices_per_gpu:,} that train on a GPU"
    return Finding(f"node {node.address}", found, enough=True)


def _examine_cluster(nodes: Sequence[Node], scenario: Scenario) -> Finding:
    fleet = FleetSize.of(scenario)
    try:
        placed = _placed(nodes, scenario)
    except ConfigError as refusal:
        return Finding("cluster", f"{len(nodes)} nodes, too small for {fleet}", False, str(refusal))
    return Finding("cluster", f"{len(placed)} of {len(nodes)} nodes carry {fleet}", enough=True)


def _examine_server(launch: Launch, here: str, nodes: Sequence[Node]) -> Finding:
    try:
        require_server_node(launch.cluster.server_labels, here, nodes)
    except ConfigError as refusal:
        return Finding("server", "not on a node with its labels", False, str(refusal))
    return Finding("server", "on a node with its labels", enough=True)


def _placed(nodes: Sequence[Node], scenario: Scenario) -> Mapping[str, Sequence[Bundle]]:
    """What each node would carry.

    Raises:
        ConfigError: the cluster is too small.
    """
    bundles = bundles_of(scenario, nodes)
    return place(bundles, choose(nodes, scenario.launch.cluster.nodes, bundles), {})


def require_to_verify(scenario: Scenario) -> None:
    """Refuse `muster verify`, whose files are on this machine only.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        "muster verify measures links on this machine or in containers; to measure them on a "
        "cluster, set verify = true in the scenario, which measures them before the run"
    )
