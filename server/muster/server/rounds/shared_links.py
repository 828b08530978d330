"""Models of the links that devices share: the seconds that they add to a round's durations."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from muster.common.body_sizes import BodySizes
from muster.common.lines import LinkModel, SharedLine, extra_seconds
from muster.server.fleet import Fleet


class SharedLinkModel:
    """The model of all shared links that can make devices slower.

    Args:
        shared: the shared link of each group that has one.
        sizes: the largest bodies that travel, by group.
    """

    def __init__(
        self,
        shared: Mapping[str, SharedLine],
        fleet: Fleet,
        seed: int,
        sizes: Mapping[str, BodySizes],
    ) -> None:
        self._shared = {group: line for group, line in shared.items() if line.delays}
        self._fleet = fleet
        self._seed = seed
        self._sizes = sizes

    @property
    def delays(self) -> bool:
        """Whether any shared link adds seconds."""
        return bool(self._shared)

    def extra_s_of(self, number: int) -> Callable[[Sequence[str]], Mapping[str, float]]:
        """The function `Rules.extra_s` for round `number`."""
        return lambda clients: self._extra_s(number, clients)

    def _extra_s(self, number: int, clients: Sequence[str]) -> dict[str, float]:
        lines = defaultdict[str, dict[str, LinkModel]](dict)
        for client in clients:
            device = self._fleet.devices[client]
            lines[device.group][client] = device.line
        extra: dict[str, float] = {}
        for group, shared in self._shared.items():
            extra |= extra_seconds(
                shared, self._seed, group, number, lines[group], *self._sizes[group]
            )
        return extra


def least_lines(
    shared: Mapping[str, SharedLine], fleet: Fleet, at_once: int
) -> dict[str, LinkModel]:
    """Each device's link when as many devices of its group transfer as can, by client.

    Args:
        shared: the shared link of each group that has one.
        at_once: transfers that run at the same time.
    """
    sizes = Counter(device.group for device in fleet.devices.values())
    lines = {}
    for client, device in fleet.devices.items():
        of_group = shared.get(device.group)
        together = min(sizes[device.group], at_once)
        lines[client] = device.line if of_group is None else of_group.least(device.line, together)
    return lines
