"""Models of the links that devices share: the seconds that they add to a round's durations."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from muster.common.lines import LinkModel
from muster.common.shared_lines import BegunWork, SharedLine, extra_seconds
from muster.server.account.run_rows import SharedWorkRow
from muster.server.account.transaction import EndedWork
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.cohort import WorkTime
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Sharing
from muster.server.rounds.steps import step_at


class SharedLinks:
    """The model of all shared links that can make devices slower."""

    @property
    def delays(self) -> bool:
        """Whether any shared link adds seconds."""
        raise NotImplementedError

    def sharing_of(self, number: int) -> Sharing:
        """The function `Rules.sharing` for round `number`."""
        raise NotImplementedError

    def settle(self, round: Round, next_s: float) -> None:
        """Take over the work of the devices that a round has called, if it may outlive the round.

        Args:
            round: a round that no longer collects.
            next_s: scenario seconds at which the next round opens.
        """

    def changed(self) -> tuple[Sequence[SharedWorkRow], Sequence[EndedWork]]:
        """The work that has changed since the last call, and of it what has ended."""
        return (), ()

    def load(self, rows: Iterable[SharedWorkRow], now_s: float) -> None:
        """Continue with the work that an earlier incarnation of the server has committed.

        Args:
            now_s: scenario seconds at which the next round opens.
        """


def links_by_name(
    shared: Mapping[str, SharedLine],
) -> dict[str, tuple[SharedLine, frozenset[str]]]:
    """The shared links that add seconds, by name, with the groups whose devices share each.

    Args:
        shared: the shared link of each group that has one.
    """
    groups = defaultdict[str, set[str]](set)
    for group, line in shared.items():
        if line.delays:
            groups[line.name or group].add(group)
    return {name: (shared[min(of_link)], frozenset(of_link)) for name, of_link in groups.items()}


def begun_work(time: WorkTime, step_s: float) -> BegunWork:
    """Work as its device modelled it. A device knows scenario time by the steps of its life."""
    return BegunWork(step_at(time.begun_s, step_s) * step_s, time.modelled_s)


class SharedLinkModel(SharedLinks):
    """Shared links in the synchronous mode: the devices whose updates came in a round divide the
    rate equally.

    Args:
        shared: the shared link of each group that has one.
        devices: all devices, by client.
        sizes: the largest bodies that travel, by group.
        step_s: scenario seconds of a step of the devices' lives.
    """

    def __init__(
        self,
        shared: Mapping[str, SharedLine],
        devices: Mapping[str, EnrolledDevice],
        seed: int,
        sizes: Mapping[str, tuple[float, float]],
        step_s: float = 1.0,
    ) -> None:
        self._shared = links_by_name(shared)
        self._devices = devices
        self._seed = seed
        self._sizes = sizes
        self._step_s = step_s

    @property
    def delays(self) -> bool:
        return bool(self._shared)

    def sharing_of(self, number: int) -> Sharing:
        return partial(self._times, number)

    def _times(self, number: int, alone: Mapping[str, WorkTime]) -> dict[str, WorkTime]:
        extra = self._extra_s(number, alone)
        return {client: time.delayed(extra.get(client, 0.0)) for client, time in alone.items()}

    def _extra_s(self, number: int, alone: Mapping[str, WorkTime]) -> dict[str, float]:
        lines = defaultdict[str, dict[str, LinkModel]](dict)
        for client in alone:
            device = self._devices[client]
            lines[device.group][client] = device.line
        work = {client: begun_work(time, self._step_s) for client, time in alone.items()}
        extra: dict[str, float] = {}
        for name, (shared, groups) in self._shared.items():
            of_link = {c: line for group in sorted(groups) for c, line in lines[group].items()}
            traffic = {client: self._sizes[self._devices[client].group] for client in of_link}
            extra |= extra_seconds(shared, self._seed, name, number, of_link, traffic, work)
        return extra


def least_lines(
    shared: Mapping[str, SharedLine], fleet: Fleet, at_once: int
) -> dict[str, LinkModel]:
    """Each device's link when as many devices of its group transfer as can, by client.

    Args:
        shared: the shared link of each group that has one.
        at_once: transfers that run at the same time.
    """

    def _name_of(group: str) -> str:
        return shared[group].name or group if group in shared else group

    sizes = Counter(_name_of(device.group) for device in fleet.devices.values())
    lines = {}
    for client, device in fleet.devices.items():
        of_group = shared.get(device.group)
        together = min(sizes[_name_of(device.group)], at_once)
        lines[client] = device.line if of_group is None else of_group.least(device.line, together)
    return lines
