"""Training that fails: how often it has on each device, one call after the other, and whom the
server therefore leaves out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from muster.server.fleet.devices import EnrolledDevice


class TrainingEnd(NamedTuple):
    """How the training for a call ended.

    Attributes:
        round: the round of the call.
        failed: whether it raised an error.
    """

    client: str
    round: int
    failed: bool


class Failures:
    """The calls for which training has failed, of every device, since one for which it has not.

    Attributes:
        left_out: the clients of the devices that are called no more.

    Args:
        limits: by group, the number of errors in a row after which a device is left out.
        devices: by client.
    """

    def __init__(self, limits: Mapping[str, int], devices: Mapping[str, EnrolledDevice]) -> None:
        self.left_out = set[str]()
        self._devices = devices
        self._limits = {
            client: limits[device.group]
            for client, device in devices.items()
            if device.group in limits
        }
        self._failed = defaultdict[str, set[int]](set)
        self._trained = dict[str, int]()

    @property
    def limited(self) -> bool:
        """Whether any device may be left out."""
        return bool(self._limits)

    def enter(self, ends: Iterable[TrainingEnd]) -> list[str]:
        """Enter how training ended; return the clients that are left out from now on."""
        found = []
        for client, round, failed in ends:
            if client not in self._limits:
                continue
            if failed:
                self._failed[client].add(round)
            else:
                self._trained[client] = max(round, self._trained.get(client, 0))
            if self.in_a_row(client) < self._limits[client]:
                self.left_out.discard(client)
            elif client not in self.left_out:
                self.left_out.add(client)
                found.append(client)
        return found

    def in_a_row(self, client: str) -> int:
        """The number of failures of a device since its newest training that did not fail."""
        last = self._trained.get(client, 0)
        return sum(round > last for round in self._failed.get(client, ()))

    @property
    def nobody_left(self) -> bool:
        """Whether every device is left out."""
        return self.limited and self.left_out == self._devices.keys()
