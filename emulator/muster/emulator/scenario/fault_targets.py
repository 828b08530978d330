"""Whom faults strike."""

from collections.abc import Sequence
from typing import NamedTuple

from muster.common.seeds import stream
from muster.emulator.faults.settings import FaultTarget, ScheduledFault
from muster.emulator.scenario.population import Resident


class GatewayGroup(NamedTuple):
    """A group that has a gateway."""

    group: str
    gateway: str


def targets_of(
    fault: ScheduledFault,
    seed: int,
    residents: Sequence[Resident],
    gateways: Sequence[GatewayGroup],
) -> list[str]:
    """All that a fault may strike: clients, "server", or names of gateways.

    Raises:
        ValueError: nothing matches the target of the fault.
    """
    target = fault.target
    if target.role == "server":
        return ["server"]
    if target.role == "gateway":
        found = [gateway for group, gateway in gateways if target.group in (None, group)]
        if not found:
            raise ValueError("target: no such group has a gateway; give it a link")
        return list(dict.fromkeys(found))  # groups may share one
    able = [r.client for r in residents if r.enrolled and target.group in (None, r.group)]
    if target.names is not None:
        named = set(target.names)
        if strange := sorted(named.difference(able)):
            raise ValueError(
                f"target.names: {strange[0]!r} is not an enrolled device of the target"
            )
        able = [client for client in able if client in named]
    if not able:
        raise ValueError("target: no enrolled device matches it")
    return _drawn(able, target, seed, str(fault.name))


def _drawn(able: list[str], target: FaultTarget, seed: int, name: str) -> list[str]:
    """The devices that `count` or `percent` leaves, in the order of the population."""
    count = target.count
    if target.percent is not None:
        count = max(1, round(len(able) * target.percent / 100))
    if count is None:
        return able
    if count > len(able):
        raise ValueError(f"target.count: {count} devices, but only {len(able)} match the target")
    order = stream(seed, "fault", name, "targets").permutation(len(able))[:count]
    return [able[place] for place in sorted(order)]
