from collections.abc import Iterator
from itertools import combinations, product
from typing import Literal

import numpy as np
import pytest

from muster.client.availability.k_of_n import effective_weights
from muster.common.seeds import stream
from muster.emulator.fleet.group_shares import EventGroup, shares_of_groups
from muster.studies.agnostic.known import shares_by_enumeration, skew
from muster.studies.fedipw.two_groups import fixed_point, prop_e1

# Bias Mitigation for Federated Learning with Spatially Correlated Participation, figure 1.
PAPER = [EventGroup(3, 0.3, 0.95), EventGroup(4, 0.6, 0.95), EventGroup(3, 0.3, 0.95)]
SIZES = np.array([3, 4, 3])
EMPTY = 0.1960228383


def test_the_shares_of_the_correlated_setting() -> None:
    shares, empty = shares_of_groups(PAPER)
    np.testing.assert_allclose(shares, [0.0573964999, 0.1148995406, 0.0573964999], atol=5e-11)
    assert empty == pytest.approx(EMPTY, abs=5e-11)
    assert SIZES @ shares == pytest.approx(1 - empty, abs=1e-14)


def test_dropping_empty_rounds_makes_every_share_a_quarter_too_large() -> None:
    shares, empty = shares_of_groups(PAPER)
    among_others = shares / (1 - empty)  # p_i of the agnostic paper
    assert among_others[0] / shares[0] - 1 == pytest.approx(0.2438, abs=1e-4)
    assert SIZES @ among_others == pytest.approx(1)


def outcomes(group: EventGroup) -> Iterator[tuple[tuple[bool, ...], float]]:
    """Who of a group gets through, with what probability; written out, device by device."""
    yield (False,) * group.size, 1 - group.probability
    for active in product([False, True], repeat=group.size):
        q, count = group.device_probability, sum(active)
        chance = group.probability * q**count * (1 - q) ** (group.size - count)
        if group.slots is None or count <= group.slots:
            yield active, chance
        elif group.overflow == "collide":
            yield (False,) * group.size, chance
        else:
            who = [place for place, on in enumerate(active) if on]
            drawn = list(combinations(who, group.slots))
            for chosen in drawn:
                through = tuple(place in chosen for place in range(group.size))
                yield through, chance / len(drawn)


@pytest.mark.parametrize(
    "groups",
    [
        [EventGroup(2, 0.3, 0.9)],
        [EventGroup(3, 0.3, 0.95, slots=2), EventGroup(2, 0.6, 0.5)],
        [EventGroup(3, 0.7, 0.6, 2, "subset"), EventGroup(2, 0.6, 0.5, 1, "collide")],
        [EventGroup(3, 1.0, 0.5, 0, "subset"), EventGroup(1, 0.5, 1.0), EventGroup(2, 0.2, 0.3, 5)],
    ],
)
def test_shares_are_those_of_every_outcome_written_out(groups: list[EventGroup]) -> None:
    expected, nobody = np.zeros(len(groups)), 0.0
    for combination in product(*map(outcomes, groups)):
        chance = float(np.prod([p for _, p in combination]))
        came = sum(sum(through) for through, _ in combination)
        nobody += chance * (came == 0)
        for place, (through, _) in enumerate(combination):
            expected[place] += chance * through[0] / came if through[0] else 0.0
    shares, empty = shares_of_groups(groups)
    np.testing.assert_allclose(shares, expected, atol=1e-14)
    assert empty == pytest.approx(nobody, abs=1e-14)


def test_a_group_without_devices_has_no_share_and_changes_no_other() -> None:
    shares, empty = shares_of_groups([*PAPER, EventGroup(0, 0.5, 0.5)])
    np.testing.assert_allclose(shares[:3], shares_of_groups(PAPER)[0], atol=1e-15)
    assert shares[3] == 0
    assert empty == pytest.approx(EMPTY, abs=5e-11)


def test_too_few_slots_thin_out_who_gets_through() -> None:
    def limited(overflow: Literal["collide", "subset"]) -> list[EventGroup]:
        return [group._replace(slots=3, overflow=overflow) for group in PAPER]

    collide, empty_collide = shares_of_groups(limited("collide"))
    subset, empty_subset = shares_of_groups(limited("subset"))
    # As good as always all four of the group in the middle are active, and all of them fail.
    assert collide[1] < 0.3 * subset[1]
    assert empty_subset == pytest.approx(EMPTY, abs=5e-11)
    assert empty_collide > 2 * EMPTY


def test_two_of_six_by_enumeration_and_by_the_race() -> None:
    weights = np.array([5, 3, 2, 1, 1, 0.5])
    known = [0.344369, 0.248727, 0.175843, 0.092062, 0.092062, 0.046937]
    enumerated = shares_by_enumeration(weights, 2)
    np.testing.assert_allclose(enumerated, known, atol=5e-7)
    np.testing.assert_allclose(effective_weights(weights, 2), enumerated, atol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4, 6, 9])
def test_enumeration_and_race_agree_whatever_is_drawn(k: int) -> None:
    weights = np.exp(-np.arange(6) / 1.5)
    enumerated = shares_by_enumeration(weights, k)
    np.testing.assert_allclose(effective_weights(weights, k), enumerated, atol=1e-9)
    assert enumerated.sum() == pytest.approx(1, abs=1e-14)


def test_skew_is_the_distance_from_equal_shares() -> None:
    assert skew([0.25] * 4) == 0
    assert skew([1, 0, 0, 0]) == pytest.approx(2 - 2 / 4)
    assert skew([0.5, 0.3, 0.2]) == pytest.approx(1 / 6 + 1 / 30 + 2 / 15)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.5])
@pytest.mark.parametrize(("heterogeneity", "curvature"), [(1.0, 1.0), (2.0, 0.5), (0.3, 4.0)])
def test_the_gap_of_proposition_e1(epsilon: float, heterogeneity: float, curvature: float) -> None:
    found = prop_e1(epsilon, heterogeneity, curvature)
    assert found.gap == pytest.approx(epsilon**2 * heterogeneity**2 / (2 * curvature), abs=1e-12)
    assert found.promised == pytest.approx(found.gap, abs=1e-12)
    # With the right weights there is none, and enrollment alone makes the wrong ones.
    assert fixed_point([1, 1], found.minimisers) == 0
    np.testing.assert_allclose(
        found.enrollment / found.enrollment.mean(), [1 + epsilon, 1 - epsilon], atol=1e-15
    )
    assert found.enrollment.max() == 1


def test_where_a_quadratic_surrogate_ends_with_and_without_importance_weights() -> None:
    # F_m = ½‖w − e_g‖², g the group of m; every round is a step on the mean gradient of those who
    # came, and ĉ is what was seen so far, rounds in which nobody came included.
    labels = np.repeat(np.eye(3), SIZES, axis=0)
    biased = fixed_point(np.repeat(shares_of_groups(PAPER)[0], SIZES), labels)
    unbiased = fixed_point(np.ones(10), labels)
    np.testing.assert_allclose(biased, [0.214, 0.572, 0.214], atol=5e-4)
    np.testing.assert_allclose(unbiased, [0.3, 0.4, 0.3], atol=1e-15)

    random, rounds, rate = stream(1, "surrogate"), 6000, 0.02
    events = np.repeat(random.random((rounds, 3)) < [0.3, 0.6, 0.3], SIZES, axis=1)
    came = events & (random.random((rounds, 10)) < 0.95)
    w, of_tail = {False: np.zeros(3), True: np.zeros(3)}, {False: np.zeros(3), True: np.zeros(3)}
    seen = np.zeros(10)
    for number, who in enumerate(came, start=1):
        if count := who.sum():
            seen[who] += 1 / count
            weights = {False: np.ones(10), True: 1 / (10 * np.maximum(seen / number, 0.01))}
            for debiased, iterate in w.items():
                weighted = (weights[debiased][:, np.newaxis] * (iterate - labels))[who]
                w[debiased] = iterate - rate * weighted.sum(axis=0) / count
        if number > rounds // 3:
            for debiased, iterate in w.items():
                of_tail[debiased] += iterate / (rounds - rounds // 3)
    np.testing.assert_allclose(of_tail[False], biased, atol=0.02)
    np.testing.assert_allclose(of_tail[True], unbiased, atol=0.02)
