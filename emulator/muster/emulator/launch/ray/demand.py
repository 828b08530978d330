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
    beside it; of other groups, every pack is one.

    Args:
        nodes: the nodes of the cluster, whose GPUs decide where a group trains on `auto`.
    """
    return list(_bundles(scenario, nodes))


def _bundles(scenario: Scenario, nodes: Sequence[Node]) -> Iterator[Bundle]:
    packs = packs_by_group(scenario, population(scenario))
    cluster = scenario.launch.cluster
    for group in scenario.groups:
        names, labels = list(packs[group.name]), cluster.labels.get(group.name, {})
        on_gpu = _on_gpu(group, labels, nodes)
        together = [names] if group.gateway else [[name] for name in names]
        for on_one_node in filter(None, together):
            programs = [gateway_name(group.name)] if group.gateway else []
            programs += on_one_node
            needs = {name: each * len(programs) for name, each in cluster.resources.items()}
            if on_gpu:
                needs[GPU] = len(on_one_node) / scenario.launch.devices_per_gpu
            trained = tuple(on_one_node) if on_gpu else ()
            yield Bundle(group.name, tuple(programs), needs, labels, trained)


def _on_gpu(group: Group, labels: Mapping[str, str], nodes: Sequence[Node]) -> bool:
    """Whether the devices of a group train on a GPU: on `auto`, if a node with its labels has
    one."""
    may = [node for node in nodes if node.has(labels)]
    return doctor.on_gpu(group, sum(int(node.resources.get(GPU, 0)) for node in may))
