"""The durations of modelled work that devices state, bounded by what the server knows of it.

In lockstep, the stated durations move scenario time and decide which updates are late. Therefore no
device may state one that its work cannot have. The server knows the work of every device except
when the faults of the scenario slow it down, and the share of it that a device did before it gave
up.
"""

import logging
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from muster.common.body_sizes import BodySizes
from muster.common.exchange import Answer, Decision, Key, Update
from muster.server.fleet.devices import EnrolledDevice

log = logging.getLogger(__name__)

_TOLERANCE = 1e-9
"""Relative. The factors of several faults may be multiplied in another order."""


class _Bounds(NamedTuple):
    """The shortest and the longest duration of a device's work, in modelled seconds."""

    least_s: float
    most_s: float


_UNKNOWN = _Bounds(0.0, math.inf)


class WorkDurations:
    """Replaces durations that a device's work cannot have by the nearest that it can have. Devices
    of which nothing is known are believed.

    Args:
        devices: all devices, by client.
        sizes: the bodies that travel for a call, by group.
        lockstep: False: a device that will lose its work silently accepts, and states the share of
            the work that it does until then.
        recorded_s: takes the round of a call, its device and the stated seconds; returns those that
            are recorded, if the run is played from a life record; None: it is not.
    """

    def __init__(
        self,
        devices: Mapping[str, EnrolledDevice],
        sizes: Mapping[str, BodySizes],
        lockstep: bool = True,
        recorded_s: Callable[[int, str, float], float] | None = None,
    ) -> None:
        self._lockstep = lockstep
        self._recorded_s = recorded_s
        self._bounds: dict[str, _Bounds] = {}
        self._told: set[str] = set()
        shared: dict[_Bounds, _Bounds] = {}  # most devices have the same
        for client, device in devices.items():
            if (training_s := device.training_s) is not None:
                transfers_s = device.line.bounds_s(*sizes[device.group])
                bounds = _Bounds(*map(sum, zip(training_s, transfers_s, strict=True)))
                self._bounds[client] = shared.setdefault(bounds, bounds)

    def of_answer(self, answer: Answer) -> Answer:
        """The answer, and the update in it, with possible durations."""
        update, stated_s = answer.update, answer.modelled_s
        bounds = self._bounds.get(answer.key.client, _UNKNOWN)
        if self._recorded_s is None and bounds.least_s <= stated_s <= bounds.most_s:
            if update is None or update.modelled_s == stated_s:
                return answer
        whole = answer.decision is Decision.ACCEPT and self._lockstep
        modelled_s = self._possible(answer.key, stated_s, whole)
        update = None if update is None else self.of_update(update)
        if modelled_s == stated_s and update is answer.update:
            return answer
        return answer._replace(modelled_s=modelled_s, update=update)

    def of_update(self, update: Update) -> Update:
        """The update with a possible duration."""
        modelled_s = self._possible(update.key, update.modelled_s, whole=True)
        return update if modelled_s == update.modelled_s else update._replace(modelled_s=modelled_s)

    def _possible(self, key: Key, stated_s: float, whole: bool) -> float:
        """The possible duration that is nearest to the stated one.

        Args:
            whole: whether the device does all of the work.
        """
        client = key.client
        if self._recorded_s is not None:
            stated_s = self._recorded_s(key.round, client, stated_s)
        bounds = self._bounds.get(client, _UNKNOWN)
        least_s = bounds.least_s if whole else 0.0
        if least_s * (1 - _TOLERANCE) <= stated_s <= bounds.most_s * (1 + _TOLERANCE):
            return stated_s
        if client not in self._told:
            self._told.add(client)
            log.warning(
                "%s states %g modelled seconds for its work; its work takes %g to %g, and the "
                "server takes the nearest of these",
                client, stated_s, least_s, bounds.most_s,
            )  # fmt: skip
        return max(least_s, min(stated_s, bounds.most_s))
