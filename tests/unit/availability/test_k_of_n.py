import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.k_of_n import (
    KOfN,
    effective_weights,
    inclusion_probabilities,
)

MakeCast = Callable[..., DeviceBatch]

SIX = [5.0, 3.0, 2.0, 1.0, 1.0, 0.5]


def enumerated(weights: np.ndarray, k: int) -> np.ndarray:
    """Inclusion probabilities as the sum over all orders in which k can be drawn."""
    inclusion = np.zeros(len(weights))
    for order in itertools.permutations(range(len(weights)), k):
        chance = math.prod(
            weights[i] / sum(w for j, w in enumerate(weights) if j not in order[:drawn])
            for drawn, i in enumerate(order)
        )
        inclusion[list(order)] += chance
    return inclusion


def test_two_of_six_have_the_known_effective_weights() -> None:
    expected = [0.344369, 0.248727, 0.175843, 0.092062, 0.092062, 0.046937]
    np.testing.assert_allclose(effective_weights(np.array(SIX), 2), expected, atol=5e-7)


@pytest.mark.parametrize("k", [1, 2, 4, 6, 7])
@pytest.mark.parametrize("spread", [0.3, 3.0, 15.0])
def test_inclusion_probabilities_are_those_of_enumeration(k: int, spread: float) -> None:
    weights = np.exp(spread * np.random.default_rng(k).normal(size=7))
    found = inclusion_probabilities(weights, k)
    np.testing.assert_allclose(found, enumerated(weights, k), rtol=1e-12)


@pytest.mark.parametrize(
    ("n", "k", "decay"), [(100, 10, 10.0), (100, 99, 10.0), (300, 60, 100.0), (200, 5, 0.5)]
)
def test_inclusion_probabilities_sum_to_k(n: int, k: int, decay: float) -> None:
    inclusion = inclusion_probabilities(np.exp(-np.arange(n) / decay), k)
    assert inclusion.sum() == pytest.approx(k, rel=1e-12)
    assert np.all(np.diff(inclusion) <= 1e-15)
    assert effective_weights(np.exp(-np.arange(n) / decay), k).sum() == pytest.approx(1, rel=1e-12)


def test_equal_devices_are_equally_likely() -> None:
    np.testing.assert_allclose(inclusion_probabilities(np.full(50, 3.0), 20), 0.4)
    nearly = 3.0 + 1e-9 * np.arange(50, dtype=np.float64)
    np.testing.assert_allclose(inclusion_probabilities(nearly, 20), 0.4, rtol=1e-8)


def test_agnostic_fedavgs_setting_is_skewed_as_its_page_says(make_cast: MakeCast) -> None:
    cast = make_cast(100)
    process = KOfN(kind="k-of-n", k=10, decay=10.0).process(cast)
    p = process.chance(cast.scene(0)) / 10
    # What eq. (10) multiplies the parameters by in a round.
    assert 100 * np.sum(p**2) == pytest.approx(4.17, abs=0.005)


def test_a_large_groups_chances_are_near_the_exact_ones(make_cast: MakeCast) -> None:
    cast = make_cast(20_000)
    chance = KOfN(kind="k-of-n", k=100, decay=5000.0).process(cast).chance(cast.scene(0))
    assert chance.sum() == pytest.approx(100, rel=1e-9)
    # The heaviest of many light ones: as if drawn with replacement, to first order.
    share = 1 / (5000 * (1 - math.exp(-4)))
    assert chance[0] == pytest.approx(100 * share, rel=0.02)


@pytest.mark.parametrize("settings", [{"weights": SIX}, {"decay": 2.0}, {}], ids=str)
def test_each_step_has_exactly_k_each_as_often_as_its_chance(
    make_cast: MakeCast, settings: dict[str, object]
) -> None:
    cast, steps = make_cast(6), 20_000
    process = KOfN.model_validate({"kind": "k-of-n", "k": 2, **settings}).process(cast)
    on = np.array([process.on(cast.scene(step)) for step in range(steps)])
    np.testing.assert_array_equal(on.sum(axis=1), 2)
    chance = process.chance(cast.scene(0))
    # Binomial deviation of at most 0.5/√20,000 = 0.0035.
    np.testing.assert_allclose(on.mean(axis=0), chance, atol=0.015)


def test_settings_that_do_not_fit_the_group_are_refused() -> None:
    with pytest.raises(ValueError, match="k = 4 of a group of 3; expected at most 3"):
        KOfN(kind="k-of-n", k=4).check("phones", 3, 1.0)
    with pytest.raises(ValueError, match="found 6 weights, expected one per device: 7"):
        KOfN(kind="k-of-n", k=2, weights=SIX).check("phones", 7, 1.0)
    with pytest.raises(ValueError, match=r"exp\(-1000\), too small .* at least 1\.4"):
        KOfN(kind="k-of-n", k=2, decay=1.0).check("phones", 1001, 1.0)
    with pytest.raises(ValueError, match="leave one out"):
        KOfN(kind="k-of-n", k=2, weights=SIX, decay=1.0)
