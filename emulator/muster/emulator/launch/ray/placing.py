"""Decides which node carries which programs of a fleet."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.common.errors import ConfigError

GPU = "GPU"
"""Ray's name of GPUs."""

Resources = Mapping[str, float]
"""Amounts by Ray's name of the resource; `memory` is in bytes."""

_DIGITS = 9
"""Digits after the point of an amount, which keep sums of shares exact."""


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

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether the node has labels."""
        return labels.items() <= self.labels.items()


@dataclass(frozen=True)
class Bundle:
    """Programs of a group that have to be on the same node.

    Attributes:
        programs: the names of packs, and of the gateway if there is one.
        resources: what all of them need together.
        labels: what the node must have.
        on_gpu: those of the programs that train on a GPU.
    """

    group: str
    programs: tuple[str, ...]
    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    on_gpu: tuple[str, ...] = ()

    def may_be_on(self, node: Node) -> bool:
        """Whether the node has the labels, and some of every resource."""
        has_all = all(node.resources.get(name) for name in self.resources)
        return has_all and node.has(self.labels)


@dataclass(frozen=True)
class Reservation:
    """What Ray has reserved on a node, and how much of it the programs there need.

    Ray reserves only whole numbers of what is more than one. GPUs are always reserved whole, so
    that no other job of the cluster trains on them too. So more may be reserved than is needed.
    """

    reserved: Resources = field(default_factory=dict)
    needed: Resources = field(default_factory=dict)

    def lacks(self, bundles: Iterable[Bundle]) -> Resources:
        """What has to be reserved besides, if the node carries bundles too."""
        needed = self.used_by(bundles).needed
        lacking = {
            name: _rounded_up(name, amount - self.reserved.get(name, 0.0))
            for name, amount in needed.items()
        }
        return {name: amount for name, amount in lacking.items() if amount > 0}

    def with_more(self, reserved: Resources) -> "Reservation":
        """With what has been reserved besides."""
        return Reservation(summed([self.reserved, reserved]), self.needed)

    def used_by(self, bundles: Iterable[Bundle]) -> "Reservation":
        """With bundles that the node carries besides."""
        needs = (bundle.resources for bundle in bundles)
        return Reservation(self.reserved, summed([self.needed, *needs]))

    def unused(self) -> "Reservation":
        """Without any programs."""
        return Reservation(self.reserved)

    def room(self, node: Node) -> Resources:
        """What programs can still get on the node, which has this reservation."""
        room = {}
        for name, amount in node.resources.items():
            reserved = self.reserved.get(name, 0.0)
            most = reserved + _rounded_down(name, amount - reserved)
            room[name] = most - self.needed.get(name, 0.0)
        return room


def summed(amounts: Iterable[Resources]) -> Resources:
    """The sums of amounts."""
    sums: dict[str, float] = defaultdict(float)
    for each in amounts:
        for name, amount in each.items():
            sums[name] += amount
    return sums


def _rounded_up(name: str, amount: float) -> float:
    """The least that Ray reserves for an amount."""
    rounded = round(amount, _DIGITS)
    return math.ceil(rounded) if name == GPU or rounded > 1 else rounded


def _rounded_down(name: str, amount: float) -> float:
    """The most that Ray reserves of an amount."""
    rounded = round(amount, _DIGITS)
    return math.floor(rounded) if name == GPU or rounded > 1 else rounded


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
            f"launch.cluster.nodes: expected {number} nodes that can carry a group, found "
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
    # The others carry nothing, but they may be what a refusal has to name.
    return chosen if number is not None else [*chosen, *(n for n in nodes if not carries[n.id])]


def place(
    bundles: Sequence[Bundle], nodes: Sequence[Node], before: Mapping[str, Reservation]
) -> Mapping[str, list[Bundle]]:
    """Place each bundle on the node that may carry it and is then the least full. Bundles that
    fewer nodes may carry come first, and of the others the largest.

    Args:
        before: what is reserved on nodes already, by their ids.

    Returns:
        the bundles of every node that got some, by its id.

    Raises:
        ConfigError: the nodes cannot carry them; the message says what is missing.
    """
    room = {node.id: dict(before.get(node.id, Reservation()).room(node)) for node in nodes}
    candidates = [(bundle, [n for n in nodes if bundle.may_be_on(n)]) for bundle in bundles]
    candidates.sort(key=lambda each: (len(each[1]), -len(each[0].programs)))
    placed: dict[str, list[Bundle]] = defaultdict(list)
    homeless = []
    for bundle, may in candidates:
        fitting = [node for node in may if _fits(bundle, room[node.id])]
        if not fitting:
            homeless.append(bundle)
            continue
        found = min(fitting, key=lambda node: _fullness(bundle, node, room[node.id]))
        placed[found.id].append(bundle)
        for name, amount in bundle.resources.items():
            room[found.id][name] -= amount
    if homeless:
        raise ConfigError(_missing(bundles, homeless, nodes, room))
    return placed


def _fits(bundle: Bundle, room: Resources) -> bool:
    return all(
        round(room[name] - amount, _DIGITS) >= 0 for name, amount in bundle.resources.items()
    )


def _fullness(bundle: Bundle, node: Node, room: Resources) -> float:
    """The share in use of the node's scarcest resource, once it carries the bundle too."""
    shares = (
        1 - (room[name] - amount) / node.resources[name]
        for name, amount in bundle.resources.items()
    )
    return round(max(shares, default=0.0), _DIGITS)


def spread(programs: Iterable[str], gpus: int, before: Mapping[str, int]) -> Mapping[str, int]:
    """Give each program the GPU of a node that then has the fewest programs.

    Args:
        gpus: number of GPUs that are reserved on the node.
        before: the GPUs of other programs, by name.

    Returns:
        the index of each program's GPU, by name.
    """
    taken = Counter(dict.fromkeys(range(gpus), 0))
    taken.update(before.values())
    given = {}
    for name in programs:
        given[name] = min(taken, key=lambda index: (taken[index], index))
        taken[given[name]] += 1
    return given


def _missing(
    bundles: Sequence[Bundle],
    homeless: Sequence[Bundle],
    nodes: Sequence[Node],
    room: Mapping[str, Resources],
) -> str:
    lines = []
    for group in dict.fromkeys(bundle.group for bundle in homeless):
        without = [bundle for bundle in homeless if bundle.group == group]
        number = sum(len(bundle.programs) for bundle in without)
        of = sum(len(bundle.programs) for bundle in bundles if bundle.group == group)
        needs = described(Reservation().lacks(without))
        lines.append(
            f"{number} of {of} programs of the group {group} find no room: they need {needs}; "
            + _found(without[0], nodes, room)
        )
    together = any(len(bundle.programs) > 1 for bundle in homeless)
    return (
        "launch.cluster: the cluster is too small: "
        + ". ".join(lines)
        + ". Add nodes, lower launch.cluster.resources, "
        + ("raise launch.devices_per_gpu, " if any(b.on_gpu for b in homeless) else "")
        + "or put more devices into a process (groups.devices_per_process)"
        + (". A group with links is on one node, beside its gateway" if together else "")
    )


def _found(bundle: Bundle, nodes: Sequence[Node], room: Mapping[str, Resources]) -> str:
    """What there is for a bundle that finds no room."""
    having = f" with the labels {_joined(bundle.labels)}" if bundle.labels else ""
    labelled = [node for node in nodes if node.has(bundle.labels)]
    absent = [n for n in bundle.resources if not any(node.resources.get(n) for node in labelled)]
    matching = [node for node in labelled if bundle.may_be_on(node)]
    if not labelled:
        return f"there is no node{having}"
    if absent:
        return f"no node{having} has any {' or '.join(absent)}"
    if not matching:
        return f"no node{having} has some of each"
    left = [
        f"{described(_named(bundle.resources, room[node.id]))} on {node.address}"
        for node in matching
    ]
    return f"nodes{having} have left: {', '.join(left)}"


def require_server_node(labels: Mapping[str, str], here: str, nodes: Sequence[Node]) -> None:
    """Check that the node of the command, which gets the server, has the labels of the server.

    Args:
        here: the id of that node.

    Raises:
        ConfigError: it has not.
    """
    having = [node for node in nodes if node.has(labels)]
    if any(node.id == here for node in having):
        return
    if having:
        selector = json.dumps(dict(labels))
        advice = (
            f"It does not have them, but these nodes do: "
            f"{', '.join(node.address for node in having)}. Start the command there, for example "
            f"with ray job submit --entrypoint-label-selector '{selector}'"
        )
    else:
        advice = f"No node has them. Start one with ray start --labels={_joined(labels, ',')}"
    raise ConfigError(
        f"launch.cluster.server_labels: the server is on the node of the command, which needs the "
        f"labels {_joined(labels)}. {advice}"
    )


def _joined(labels: Mapping[str, str], by: str = ", ") -> str:
    return by.join(f"{key}={value}" for key, value in labels.items())


def _named(names: Iterable[str], amounts: Resources) -> Resources:
    return {name: max(0.0, round(amounts[name], _DIGITS)) for name in names}


def described(resources: Resources) -> str:
    """Amounts of resources, for a message."""
    return ", ".join(
        f"{amount / 2**20:,.0f} MiB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in resources.items()
    )
