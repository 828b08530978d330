"""Decides which node carries which programs of a fleet."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.common.errors import ConfigError

Resources = Mapping[str, float]
"""Amounts by Ray's name of the resource; `memory` is in bytes."""

_ROUNDING = 1e-9
"""Share of a resource by which a sum of many small amounts may exceed it."""


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    Attributes:
        resources: what the node has.
    """

    id: str
    address: str
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """Programs of a group that have to be on the same node.

    Attributes:
        programs: the names of packs, and of the gateway if there is one.
        resources: what all of them need together.
        labels: what the node must have.
    """

    group: str
    programs: tuple[str, ...]
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)

    def may_be_on(self, node: Node) -> bool:
        """Whether the node has the labels."""
        return self.labels.items() <= node.labels.items()


def total(loads: Iterable[Load]) -> Resources:
    """What loads need together."""
    needed: dict[str, float] = defaultdict(float)
    for load in loads:
        for name, amount in load.resources.items():
            needed[name] += amount
    return dict(needed)


def choose(nodes: Sequence[Node], number: int | None, loads: Sequence[Load]) -> Sequence[Node]:
    """The nodes that carry the fleet: of those that may carry a load, the ones that may carry the
    most, and among them the first.

    Args:
        number: how many nodes carry the fleet; None: all.

    Raises:
        ConfigError: there are fewer.
    """
    of = {node.id: sum(load.may_be_on(node) for load in loads) for node in nodes}
    usable = sorted((node for node in nodes if of[node.id]), key=lambda node: -of[node.id])
    if number is not None and len(usable) < number:
        raise ConfigError(
            f"launch.cluster.nodes: expected {number} nodes with the labels of a group, found "
            f"{len(usable)} in a cluster of {len(nodes)}; add nodes, or lower launch.cluster.nodes"
        )
    return usable[:number]


def place(
    loads: Sequence[Load], nodes: Sequence[Node], before: Mapping[str, Sequence[Load]]
) -> Mapping[str, list[Load]]:
    """Place each load on the node with its labels that is then the least full, the largest loads
    first.

    Args:
        before: what nodes already carry, by their ids.

    Returns:
        the loads of every node that got some, by its id.

    Raises:
        ConfigError: the nodes cannot carry them; the message says what is missing.
    """
    used = {node.id: defaultdict(float, total(before.get(node.id, ()))) for node in nodes}
    placed: dict[str, list[Load]] = defaultdict(list)
    homeless = []
    for load in sorted(loads, key=lambda load: -len(load.programs)):
        found = min(
            (node for node in nodes if load.may_be_on(node)),
            key=lambda node: _fullness(load, node, used[node.id]),
            default=None,
        )
        if found is None or _fullness(load, found, used[found.id]) > 1 + _ROUNDING:
            homeless.append(load)
            continue
        placed[found.id].append(load)
        for name, amount in load.resources.items():
            used[found.id][name] += amount
    if homeless:
        raise ConfigError(_missing(loads, homeless, nodes, used))
    return placed


def _fullness(load: Load, node: Node, used: Resources) -> float:
    """The share in use of the node's scarcest resource, once it carries the load too."""
    return max(
        (
            (used.get(name, 0.0) + amount) / node.resources.get(name, 0.0)
            if node.resources.get(name)
            else float("inf")
            for name, amount in load.resources.items()
        ),
        default=0.0,
    )


def _missing(
    loads: Sequence[Load],
    homeless: Sequence[Load],
    nodes: Sequence[Node],
    used: Mapping[str, Resources],
) -> str:
    lines = []
    for group in dict.fromkeys(load.group for load in homeless):
        without = [load for load in homeless if load.group == group]
        number = sum(len(load.programs) for load in without)
        of = sum(len(load.programs) for load in loads if load.group == group)
        matching = [node for node in nodes if without[0].may_be_on(node)]
        needs = described(total(without))
        labels = ", ".join(f"{key}={value}" for key, value in without[0].labels.items())
        where = f"nodes with the labels {labels}" if labels else "nodes"
        free = [f"{node.address} has {described(_free(node, used[node.id]))}" for node in matching]
        lines.append(
            f"{number} of {of} programs of the group {group} find no room: they need {needs}; "
            f"of {len(matching)} {where}, {'; '.join(free) or 'none'} left"
        )
    together = any(len(load.programs) > 1 for load in homeless)
    return (
        "launch.cluster: the cluster is too small: "
        + ". ".join(lines)
        + ". Add nodes, lower launch.cluster.resources, or put more devices into a process "
        "(groups.devices_per_process)"
        + (". A group with links is on one node, beside its gateway" if together else "")
    )


def _free(node: Node, used: Resources) -> Resources:
    return {name: max(0.0, node.resources.get(name, 0.0) - used.get(name, 0.0)) for name in used}


def described(resources: Resources) -> str:
    """Amounts of resources, for a message."""
    return ", ".join(
        f"{amount / 2**20:,.0f} MiB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in resources.items()
    )
