"""Two aggregators: a plain mean, and one that a few wrong updates cannot move far."""

import numpy as np

from muster.server.aggregators import Aggregator, Contribution, State
from muster.server.aggregators.robust import Coordinatewise


class PlainMean(Aggregator):
    """The mean of the updates: all devices count alike, however many examples they have."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1.0


class MiddleHalf(Coordinatewise):
    """For each coordinate, the mean of the middle half of its values."""

    def combine(self, updates: np.ndarray, counted: int) -> np.ndarray:
        quarter = counted // 4
        middle = np.sort(updates, axis=0)[quarter : counted - quarter]
        return middle.mean(axis=0, dtype=np.float64)
