"""What the programs of a scenario need of a cluster."""

from collections.abc import Iterator, Mapping, Sequence

from muster.emulator.fleet.packs import packs_by_group
from muster.emulator.gateway.config import gateway_name
from muster.emulator.launch import doctor
from muster.emulator.launch.ray.placing import GPU, Bundle, Node
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group


def bundles_of(scenario: Scenario, nodes: Sequence[Node]) -> Sequence[Bundle]:
    """The bundles of a scenario. A group that has a gateway is one bundle, so that its devices are
    beside it, and so are groups that share a link; of other groups, every pack is one.

    Args:
        nodes: the nodes of the cluster, whose GPUs decide where a group trains on `auto`.
    """
    return list(_bundles(scenario, nodes))


def _bundles(scenario: Scenario, nodes: Sequence[Node]) -> Iterator[Bundle]:
    packs = packs_by_group(scenario, population(scenario))
    cluster = scenario.launch.cluster
    sharing: dict[str, list[Group]] = {}
    for group in scenario.groups:
        sharing.setdefault(group.gateway_group, []).append(group)
    for name, groups in sharing.items():
        labels: dict[str, str] = {}
        for group in groups:
            labels |= cluster.labels.get(group.name, {})
        trained = {
            pack for group in groups if _on_gpu(group, labels, nodes) for pack in packs[group.name]
        }
        names = [pack for group in groups for pack in packs[group.name]]
        gateway = groups[0].gateway
        for on_one_node in filter(None, [names] if gateway else [[each] for each in names]):
            programs = ([gateway_name(name)] if gateway else []) + on_one_node
            needs = {name: each * len(programs) for name, each in cluster.resources.items()}
            on_gpu = tuple(pack for pack in on_one_node if pack in trained)
            if on_gpu:
                needs[GPU] = len(on_gpu) / scenario.launch.devices_per_gpu
            yield Bundle(name, tuple(programs), needs, labels, on_gpu)


def _on_gpu(group: Group, labels: Mapping[str, str], nodes: Sequence[Node]) -> bool:
    """Whether the devices of a group train on a GPU: on `auto`, if a node with its labels has
    one."""
    may = [node for node in nodes if node.has(labels)]
    return doctor.on_gpu(group, sum(int(node.resources.get(GPU, 0)) for node in may))
