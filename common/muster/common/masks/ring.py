"""Masks that are windows of a ring: the items of a model (tensors, units or coordinates) in a fixed
order, cut into windows that follow each other around it.

Window w + 1 begins where window w ends. The device at `place` in the population has window `place`
or, if the schedule is rotating, window `place + round - 1`. So of any consecutive windows, every
item is in as many as any other item, or in one more or one less: coverage is even over the devices
of a round, and over the rounds of a device.
"""

from abc import abstractmethod

import numpy as np

from muster.common.masks.contract import MaskCall, MaskMaker, MaskName
from muster.common.seeds import BoolArray, IntArray, stream


class RingMaker(MaskMaker):
    """Makes masks from windows of a ring.

    Args:
        order: the items in the order of the ring, shape (items,); at least one.
        costs: number of coordinates of each item by its number; that of an item of the ring is at
            most the budget.
        budget: the largest number of coordinates of a window.
        always: number of coordinates that are in every mask besides.
    """

    def __init__(
        self,
        order: IntArray,
        costs: IntArray,
        budget: int,
        schedule: str,
        seed: int,
        always: int = 0,
    ) -> None:
        self._order = order
        self._costs = costs
        self._budget = budget
        self._schedule = schedule
        self._seed = seed
        # The ring twice, so that a window that passes its end is a slice.
        self._sums = np.concatenate([[0], np.cumsum(np.tile(costs[order], 2))])
        limits = self._sums[: len(order)] + budget
        ends = np.searchsorted(self._sums, limits, side="right") - 1
        self._ends = np.minimum(ends, np.arange(len(order)) + len(order))
        self._starts, self._loop = _starts(self._ends)
        window = self._sums[self._ends] - self._sums[: len(order)]
        fullest = budget if schedule == "drawn" else int(window[self._starts].max())
        self.largest = always + min(fullest, int(self._sums[len(order)]))

    def name(self, call: MaskCall) -> MaskName:
        if self._schedule == "drawn":
            return call.client, call.round
        number = call.place + (call.round - 1 if self._schedule == "rotating" else 0)
        if number >= len(self._starts):
            around = len(self._starts) - self._loop
            number = self._loop + (number - self._loop) % around
        return (self._starts[number],)

    def make(self, name: MaskName) -> BoolArray:
        if self._schedule == "drawn":
            client, round = name
            return self._chosen(self._drawn(str(client), int(round)))
        start = int(name[0])
        places = np.arange(start, self._ends[start]) % len(self._order)
        return self._chosen(self._order[places])

    def _drawn(self, client: str, round: int) -> IntArray:
        """The items of a random order, as many as fit one after the other."""
        order = stream(self._seed, "mask", client, round).permutation(self._order)
        fitting = np.searchsorted(np.cumsum(self._costs[order]), self._budget, side="right")
        return np.asarray(order[:fitting])

    @abstractmethod
    def _chosen(self, items: IntArray) -> BoolArray:
        """The coordinates of these items, shape (parameters,)."""


def _starts(ends: IntArray) -> tuple[list[int], int]:
    """Where the windows begin, until their sequence repeats, and the number of the window that
    follows the last one again."""
    starts: list[int] = []
    seen: dict[int, int] = {}
    at = 0
    while at not in seen:
        seen[at] = len(starts)
        starts.append(at)
        at = int(ends[at]) % len(ends)
    return starts, seen[at]
