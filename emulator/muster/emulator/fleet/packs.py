"""The packs of a fleet: which devices share a process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from muster.emulator.fleet.lives import by_group
from muster.emulator.scenario.population import Resident
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group

T = TypeVar("T")


class DeviceFolders(NamedTuple):
    """Folders of a run as the devices see them.

    Attributes:
        devices: has a folder for the state of every device.
        credentials: has the credentials of every pack.
    """

    devices: str
    credentials: str


def split_into_packs(group: Group, devices: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the devices of each pack, given the enrolled devices of a group in order."""
    for start in range(0, len(devices), group.devices_per_process):
        yield devices[start : start + group.devices_per_process]


def pack_name(clients: Sequence[str]) -> str:
    """The name of a pack and of its process: its client, or its first and its last client."""
    first, last = clients[0], clients[-1]
    return first if first == last else f"{first}..{last}"


def packs_by_gateway(
    scenario: Scenario, residents: Sequence[Resident]
) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """As `packs_by_group`, by the names of the groups' gateways."""
    found: dict[str, dict[str, Sequence[str]]] = {}
    packs = packs_by_group(scenario, residents)
    for group in scenario.groups:
        found.setdefault(group.gateway_group, {}).update(packs[group.name])
    return found


def packs_by_group(
    scenario: Scenario, residents: Sequence[Resident]
) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """The clients of every pack by its name, for each group."""
    found = {}
    for group, of_group in by_group(scenario, residents):
        clients = [resident.client for resident in of_group if resident.enrolled]
        packs = split_into_packs(group, clients)
        found[group.name] = {pack_name(together): together for together in packs}
    return found
