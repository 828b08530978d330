"""The expectations and bounds of the study `correlated`, against all sets of devices."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.studies.correlated import fleet
from muster.studies.correlated.fleet import DEVICE_PROBABILITY, EVENTS, FAIR, SIZES
from muster.studies.correlated.theorems import expected, printed, steps
from muster.tasks.synthetic import OpenSynthetic

Array = npt.NDArray[np.float64]
GROUP = np.repeat(range(3), SIZES)
START = np.array([1.0, -0.5, 0.7])


def sets_of_devices() -> Iterator[tuple[float, Array]]:
    """The probability of every set of devices, and the set as 0 and 1."""
    for active in product((0.0, 1.0), repeat=10):
        x, chance = np.array(active), 1.0
        for g, (size, event) in enumerate(zip(SIZES, EVENTS, strict=True)):
            there = x[GROUP == g].sum()
            one_by_one = DEVICE_PROBABILITY**there * (1 - DEVICE_PROBABILITY) ** (size - there)
            chance *= event * one_by_one + (1 - event) * (there == 0)
        yield chance, x


def gradients(scheme: str, at: Array) -> tuple[Array, Array]:
    """The probability of every set of devices, and its aggregated gradient, shape (sets, 3)."""
    c = np.repeat(fleet.exact().shares, SIZES)
    own = at - fleet.corners()[GROUP]  # ∇F_m, (devices, 3)
    chances, sets = zip(*sets_of_devices(), strict=True)
    x = np.array(sets)
    weights = x / np.maximum(x.sum(axis=1, keepdims=True), 1)
    return np.array(chances), (weights if scheme == "biased" else weights / (10 * c)) @ own


def test_the_gradient_is_the_distance_and_biased_ends_where_its_square_is_1() -> None:
    read = fleet.theorems("biased", 7, 100)
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    assert isinstance(opened, OpenSynthetic)
    np.testing.assert_allclose(opened.optimum(), opened.theta, atol=1e-6)
    at = opened.theta + START
    x, y = (np.stack(parts) for parts in zip(*map(opened.design, range(10)), strict=True))
    slopes = [a.T @ (a @ at - b) / len(a) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(np.mean(slopes, axis=0), START, atol=1e-6)
    end = (np.array(fleet.exact().biased) - FAIR) @ fleet.corners()
    assert end @ end == pytest.approx(1.0)
    chance, g = gradients("biased", end)
    np.testing.assert_allclose(chance @ g, 0.0, atol=1e-12)
    assert read.training.learning_rate_at(1) == read.training.learning_rate_at(100) == 0.1


@pytest.mark.parametrize("scheme", ["biased", "exact"])
def test_bias_and_variance_are_those_over_all_sets_of_devices(scheme: str) -> None:
    chance, g = gradients(scheme, START)
    mean = chance @ g
    rule = steps(scheme)
    ours = rule.chance @ (rule.size[:, None] * START - rule.pull)
    np.testing.assert_allclose(ours, mean, atol=1e-12)
    spread = float(chance @ ((g - mean) ** 2).sum(axis=1))
    theirs = (rule.size[:, None] * START - rule.pull - ours) ** 2
    assert float(rule.chance @ theirs.sum(axis=1)) == pytest.approx(spread)
    assert (np.abs(mean - START).max() < 1e-12) == (scheme == "exact")


@pytest.mark.parametrize("scheme", ["biased", "exact"])
def test_expectations_are_the_means_of_many_drawn_runs(scheme: str) -> None:
    rounds, runs = 16, 4000
    rule, random = steps(scheme), np.random.default_rng(1)
    x, found = np.tile(START, (runs, 1)), 0.0
    for _ in range(rounds):
        found += float((x**2).sum(axis=1).mean()) / rounds
        drawn = random.choice(len(rule.chance), runs, p=rule.chance)
        x = x - (rule.size[drawn, None] * x - rule.pull[drawn]) / 4
    assert expected(rule, START, rounds).gradient == pytest.approx(found, rel=0.05)


def test_the_variance_of_a_device_is_that_over_all_sets() -> None:
    chances, sets = (np.array(part) for part in zip(*sets_of_devices(), strict=True))
    z = sets[:, [0, 3, 7]] / np.maximum(sets.sum(axis=1, keepdims=True), 1)
    variance = chances @ z**2 - (chances @ z) ** 2
    np.testing.assert_allclose(steps("biased").device_variance, variance, atol=1e-12)


def test_the_bound_is_above_the_expectation_and_below_the_printed_bound() -> None:
    for scheme, rounds in product(["biased", "exact"], [4, 25, 900, 1500]):
        found = expected(steps(scheme), START, rounds)
        assert found.gradient < found.bound < printed(scheme, START, rounds)


def test_the_bound_of_biased_has_a_floor_and_that_of_debiased_has_the_rate() -> None:
    biased, debiased = (
        [expected(steps(scheme), START, rounds) for rounds in (400, 6400)]
        for scheme in ("biased", "exact")
    )
    assert [found.bias for found in biased] == pytest.approx([1, 1], rel=0.05)
    assert [found.bias for found in debiased] == pytest.approx([0, 0], abs=1e-12)
    # Sixteen times the rounds are a quarter of the bound.
    assert debiased[0].bound / debiased[1].bound == pytest.approx(4, rel=0.02)
    assert debiased[0].gradient / debiased[1].gradient == pytest.approx(4, rel=0.05)


def test_the_theorems_need_four_rounds() -> None:
    with pytest.raises(ValueError, match="at least 4 rounds"):
        expected(steps("biased"), START, 3)
