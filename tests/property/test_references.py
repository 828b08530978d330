"""Rules against functions of NumPy, and the benchmark of a rule."""

from collections.abc import Sequence

import numpy as np
import pytest

from muster.common.testing import ManualClock
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.fedavgm import FedAvgM
from muster.server.aggregators.median import Median
from muster.testing import ReferenceRound, agrees_with, benchmark_rule


def weighted_mean(model: np.ndarray, rounds: Sequence[ReferenceRound]) -> np.ndarray:
    for contributions, deltas in rounds:
        model = model + np.average(deltas, axis=0, weights=[c.examples for c in contributions])
    return model


def with_momentum(model: np.ndarray, rounds: Sequence[ReferenceRound]) -> np.ndarray:
    momentum = np.zeros(len(model))
    for contributions, deltas in rounds:
        mean = np.average(deltas, axis=0, weights=[c.examples for c in contributions])
        momentum = 0.9 * momentum + mean
        model = model + momentum
    return model


def median(model: np.ndarray, rounds: Sequence[ReferenceRound]) -> np.ndarray:
    for _, deltas in rounds:
        model = model + np.median(deltas, axis=0)
    return model


def test_rules_agree_with_numpy() -> None:
    agrees_with(FedAvg(), weighted_mean)
    agrees_with(FedAvgM(), with_momentum)
    agrees_with(Median(), median)


@pytest.mark.usefixtures("unshrunk")
def test_a_rule_that_differs_from_its_reference_is_told() -> None:
    with pytest.raises(AssertionError, match=r"Median.* and its reference"):
        agrees_with(Median(), weighted_mean)
    with pytest.raises(AssertionError, match="FedAvgM"):
        agrees_with(FedAvgM(momentum=0.8), with_momentum)


class TickingClock(ManualClock):
    """A clock that each look moves by a second."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def test_a_benchmark_measures_every_round_and_the_state() -> None:
    times = benchmark_rule(FedAvgM(), clients=3, parameters=100, rounds=4, clock=TickingClock())
    assert times.seconds == [1.0] * 4
    assert times.median_s == 1.0
    assert times.state_bytes == 100 * 8  # m, float64
