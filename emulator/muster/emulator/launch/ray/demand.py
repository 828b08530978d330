"""What the programs of a scenario need of a cluster."""

from collections.abc import Iterator, Sequence

from muster.emulator.fleet.packs import packs_by_group
from muster.emulator.fleet.population import population
from muster.emulator.gateway.config import gateway_name
from muster.emulator.launch.ray.placing import Bundle
from muster.emulator.scenario.scenario import Scenario


def bundles_of(scenario: Scenario) -> Sequence[Bundle]:
    """The bundles of a scenario. A group that has a gateway is one bundle, so that its devices are
    beside it; of other groups, every pack is one."""
    return list(_bundles(scenario))


def _bundles(scenario: Scenario) -> Iterator[Bundle]:
    packs = packs_by_group(scenario, population(scenario))
    cluster = scenario.launch.cluster
    for group in scenario.groups:
        names, labels = list(packs[group.name]), cluster.labels.get(group.name, {})
        together = [names] if group.gateway else [[name] for name in names]
        for programs in filter(None, together):
            if group.gateway:
                programs = [gateway_name(group.name), *programs]
            needs = {name: each * len(programs) for name, each in cluster.resources.items()}
            yield Bundle(group.name, tuple(programs), needs, labels)
