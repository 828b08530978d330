"""Decides which node carries which programs of a fleet."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.common.errors import ConfigError

Resources = Mapping[str, float]
"""Amounts by Ray's name of the resource; `memory` is in bytes."""

_DIGITS = 6
"""Digits after the point of an amount. Ray counts in ten thousandths."""


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
class Bundle:
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
        """Whether the node has the labels, and some of every resource."""
        has_all = all(node.resources.get(name) for name in self.resources)
        return has_all and self.labels.items() <= node.labels.items()


def total(bundles: Iterable[Bundle]) -> Resources:
    """What bundles need together. Ray reserves only whole numbers of what is more than one."""
    needed = summed(bundle.resources for bundle in bundles)
    return {name: _reserved(amount) for name, amount in needed.items()}


def summed(amounts: Iterable[Resources]) -> Resources:
    """The sums of amounts."""
    sums: dict[str, float] = defaultdict(float)
    for each in amounts:
        for name, amount in each.items():
            sums[name] += amount
    return sums


def _reserved(amount: float) -> float:
    rounded = round(amount, _DIGITS)
    return rounded if rounded <= 1 else math.ceil(rounded)


def choose(nodes: Sequence[Node], number: int | None, bundles: Sequence[Bundle]) -> Sequence[Node]:
    """The nodes that carry the fleet. Every group gets a node that may carry it, if that is
    possible; apart from that, nodes that may carry more come first.

    Args:
        number: how many nodes carry the fleet; None: all.

    Raises:
        ConfigError: there are fewer.
    """
    carries = {
        node.id: Counter(bundle.group for bundle in bundles if bundle.may_be_on(node))
        for node in nodes
    }
    rest, chosen = [node for node in nodes if carries[node.id]], list[Node]()
    if number is not None and len(rest) < number:
        raise ConfigError(
            f"launch.cluster.nodes: expected {number} nodes with the labels of a group, found "
            f"{len(rest)} in a cluster of {len(nodes)}; add nodes, or lower launch.cluster.nodes"
        )
    missing = {bundle.group for bundle in bundles}
    while rest and len(chosen) != number:
        best = max(
            rest,
            key=lambda node: (len(missing & carries[node.id].keys()), carries[node.id].total()),
        )
        missing -= carries[best.id].keys()
        rest.remove(best)
        chosen.append(best)
    return chosen


def place(
    bundles: Sequence[Bundle], nodes: Sequence[Node], before: Mapping[str, Resources]
) -> Mapping[str, list[Bundle]]:
    """Place each bundle on the node with its labels that is then the least full, the largest
    bundles first.

    Args:
        before: what is reserved on nodes already, by their ids.

    Returns:
        the bundles of every node that got some, by its id.

    Raises:
        ConfigError: the nodes cannot carry them; the message says what is missing.
    """
    reserved = {node.id: before.get(node.id, {}) for node in nodes}
    added = {node.id: defaultdict[str, float](float) for node in nodes}
    placed: dict[str, list[Bundle]] = defaultdict(list)
    homeless = []
    for bundle in sorted(bundles, key=lambda bundle: -len(bundle.programs)):
        found = min(
            (node for node in nodes if bundle.may_be_on(node)),
            key=lambda node: _fullness(bundle, node, reserved[node.id], added[node.id]),
            default=None,
        )
        if found is None or _fullness(bundle, found, reserved[found.id], added[found.id]) > 1:
            homeless.append(bundle)
            continue
        placed[found.id].append(bundle)
        for name, amount in bundle.resources.items():
            added[found.id][name] += amount
    if homeless:
        used = {id: summed([reserved[id], added[id]]) for id in added}
        raise ConfigError(_missing(bundles, homeless, nodes, used))
    return placed


def _fullness(bundle: Bundle, node: Node, reserved: Resources, added: Resources) -> float:
    """The share in use of the node's scarcest resource, once it carries the bundle too.

    Args:
        reserved: what is reserved on the node already.
        added: what else will be reserved, at once with the bundle.
    """
    return max(
        (
            round(reserved.get(name, 0.0) + _reserved(added.get(name, 0.0) + amount), _DIGITS)
            / node.resources[name]
            for name, amount in bundle.resources.items()
        ),
        default=0.0,
    )


def _missing(
    bundles: Sequence[Bundle],
    homeless: Sequence[Bundle],
    nodes: Sequence[Node],
    used: Mapping[str, Resources],
) -> str:
    lines = []
    for group in dict.fromkeys(bundle.group for bundle in homeless):
        without = [bundle for bundle in homeless if bundle.group == group]
        number = sum(len(bundle.programs) for bundle in without)
        of = sum(len(bundle.programs) for bundle in bundles if bundle.group == group)
        matching = [node for node in nodes if without[0].may_be_on(node)]
        needs = described(total(without))
        labels = ", ".join(f"{key}={value}" for key, value in without[0].labels.items())
        having = f" with the labels {labels}" if labels else ""
        free = [f"{described(_free(node, used[node.id]))} on {node.address}" for node in matching]
        lines.append(
            f"{number} of {of} programs of the group {group} find no room: they need {needs}; "
            + (f"nodes{having} have left: {', '.join(free)}" if free else f"no node{having} has it")
        )
    together = any(len(bundle.programs) > 1 for bundle in homeless)
    return (
        "launch.cluster: the cluster is too small: "
        + ". ".join(lines)
        + ". Add nodes, lower launch.cluster.resources, or put more devices into a process "
        "(groups.devices_per_process)"
        + (". A group with links is on one node, beside its gateway" if together else "")
    )


def _free(node: Node, used: Resources) -> Resources:
    left = {name: node.resources.get(name, 0.0) - used[name] for name in used}
    return {name: max(0.0, round(amount, _DIGITS)) for name, amount in left.items()}


def described(resources: Resources) -> str:
    """Amounts of resources, for a message."""
    return ", ".join(
        f"{amount / 2**20:,.0f} MiB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in resources.items()
    )
