"""Numbers about the papers' theorems that pages state and no study computes."""

import math

import numpy as np
import pytest

from muster.emulator.scenario.population import population
from muster.studies.fedipw.fleet import RULES, scenario


@pytest.mark.parametrize(("rounds", "bound", "mean"), [(1_500, 1.28, None), (10**6, 0.088, 0.630)])
def test_theorem_1_of_correlated_participation_is_false_with_assumption_1_as_printed(
    rounds: int, bound: float, mean: float | None
) -> None:
    """docs/studies/correlated.md: F_1 = h + 4w and F_2 = h − 4w with h(w) = √(1 + w²), so that
    F = h has ‖∇F‖² ≤ D = 1 everywhere. One client is active in a round."""
    active, slope, clients, d = (0.6, 0.4), 4.0, 2, 1.0
    bias = clients * d * sum((1 / clients - share) ** 2 for share in active)
    sigma2 = clients * active[0] * active[1] * (1 + slope) ** 2
    printed = 2 * clients * d * sigma2 / math.sqrt(rounds) + bias
    assert printed == pytest.approx(bound, abs=0.005)
    first = np.random.default_rng(201).random(rounds) < active[0]
    weight, step, squares = 0.0, 1 / math.sqrt(rounds), 0.0
    for chosen in first:
        gradient = weight / math.sqrt(1 + weight * weight)
        squares += gradient * gradient
        weight -= step * (gradient + (slope if chosen else -slope))
    found = squares / rounds
    if mean is None:
        assert found < printed
    else:
        assert found == pytest.approx(mean, abs=0.0005)
        assert found > printed


@pytest.mark.parametrize("seed", range(201, 206))
def test_participation_only_weights_are_too_wrong_for_theorem_6_1_of_fedipw(seed: int) -> None:
    """docs/studies/fedipw.md: by Corollary 6.2, ε = max(1 − πᵉ), and the theorem needs ε ≤ ½."""
    devices = population(scenario(1000, 100, seed, RULES["participation-ipw"]))
    assert max(1 - device.propensity for device in devices) >= 0.99
