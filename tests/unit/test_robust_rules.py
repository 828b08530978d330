"""Rules that resist wrong updates, each against a formula written with loops."""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import trim_mean  # type: ignore[import-untyped]

from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.common.exact_sum import BLOCK
from muster.emulator.launch import doctor
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import AGGREGATORS, Aggregator, Cohort, Combining, Contribution
from muster.server.aggregators.blocks import combined, squared_distances
from muster.server.aggregators.facts import Conditions
from muster.server.aggregators.values import Weighing
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Oracle, Population

ROBUST = ["median", "trimmed-mean", "krum", "multi-krum", "bulyan"]
LONG = BLOCK + 5
"""More coordinates than a block has."""


def rule_of(kind: str, **settings: Any) -> Aggregator:
    rule = AGGREGATORS.parse({"kind": kind, **settings})
    assert isinstance(rule, Aggregator)
    return rule


def readers(updates: np.ndarray) -> list[Any]:
    return [lambda start, stop, row=row: row[start:stop] for row in updates]


def weighed(rule: Aggregator, updates: np.ndarray, names: Sequence[str] = ()) -> Weighing:
    names = names or [f"c{place:02d}" for place in range(len(updates))]
    contributions = [Contribution(name, "g", 3 + n, 0) for n, name in enumerate(names)]
    population = Population(list(names), (), [{} for _ in names], {}, {}, Oracle())
    distances = squared_distances(readers(updates), updates.shape[1])
    return rule.weigh(Cohort(1, contributions, population, ParticipationHistory(), distances), {})


def changed(rule: Aggregator, updates: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    """What a rule adds to the model, by the contract."""
    weighing = weighed(rule, updates, names)
    if not isinstance(rule, Combining):
        weights = np.array(weighing.weights)
        return np.asarray(weights @ updates.astype(np.float64) / weighing.normaliser)
    taken = updates[np.array(weighing.weights) != 0]
    return combined(
        readers(taken), updates.shape[1], lambda block: rule.combine(block, len(updates))
    )


def drawn(seed: int, size: int, parameters: int) -> np.ndarray:
    """Updates around a common one, and two far away."""
    random = np.random.default_rng(seed)
    updates = 1 + random.standard_normal((size, parameters))
    updates[[1, size - 2]] *= [[-20.0], [1e4]]
    return updates.astype(np.float32)


# --- the formulas --------------------------------------------------------------------------------


def krum_scores(updates: np.ndarray, f: int) -> list[float]:
    """Blanchard et al., section 4: Σ ‖V_i − V_j‖² over the n − f − 2 closest j."""
    found = []
    for i, one in enumerate(updates):
        to_others = sorted(
            sum((float(a) - float(b)) ** 2 for a, b in zip(one, other, strict=True))
            for j, other in enumerate(updates)
            if j != i
        )
        found.append(sum(to_others[: max(len(updates) - f - 2, 1)]))
    return found


def bulyan(updates: np.ndarray, f: int) -> np.ndarray:
    """El Mhamdi et al., section 4, literally: a search for every argmin."""
    left: list[np.ndarray] = [*updates]
    selected: list[np.ndarray] = []
    while len(selected) < len(updates) - 2 * f:
        of_left = krum_scores(np.array(left), f)
        selected.append(left.pop(of_left.index(min(of_left))))
    beta = len(selected) - 2 * f
    result = []
    for column in np.array(selected, np.float64).T.tolist():
        values = sorted(map(Fraction, column))  # exact, so that two medians are a tie
        median = min(values, key=lambda m: sum(abs(z - m) for z in values))
        far = partial(far_from, median)
        result.append(float(sum(min(combinations(values, beta), key=far)) / beta))
    return np.array(result)


def far_from(median: Fraction, kept: Sequence[Fraction]) -> Fraction:
    return sum((abs(x - median) for x in kept), Fraction())


@pytest.mark.parametrize("size", [5, 6, 11])
def test_the_median_is_that_of_each_coordinate(size: int) -> None:
    updates = drawn(1, size, LONG)
    expected = np.median(updates.astype(np.float64), axis=0)
    np.testing.assert_array_equal(changed(rule_of("median"), updates), expected)


@pytest.mark.parametrize(("size", "settings", "f"), [
    (9, {"byzantine": 2}, 2),
    (5, {"byzantine": 2}, 2),
    (7, {"byzantine": 0}, 0),
    (12, {}, 2),
    (100, {"byzantine_ratio": 0.29}, 29),
])  # fmt: skip
def test_the_trimmed_mean_leaves_out_f_values_at_either_end(
    size: int, settings: dict[str, Any], f: int
) -> None:
    updates = drawn(2, size, LONG if size < 100 else 50)
    expected = trim_mean(updates.astype(np.float64), (f + 0.5) / size, axis=0)
    found = changed(rule_of("trimmed-mean", **settings), updates)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "f"), [(5, 1), (9, 2), (9, 3), (4, 0)])
def test_krum_takes_the_update_with_the_lowest_score(size: int, f: int) -> None:
    updates = drawn(3, size, 40)
    expected = krum_scores(updates, f)
    weighing = weighed(rule_of("krum", byzantine=f), updates)
    assert [*weighing.estimates["scores"].values()] == pytest.approx(expected, rel=1e-12)
    assert weighing.weights == [float(score == min(expected)) for score in expected]


@pytest.mark.parametrize(("settings", "count"), [
    ({"byzantine": 2}, 5),
    ({"byzantine": 2, "m": 3}, 3),
    ({"byzantine": 2, "m": 8}, 5),
    ({"byzantine_ratio": 0.25}, 5),
])  # fmt: skip
def test_multi_krum_is_the_plain_mean_of_those_with_the_lowest_scores(
    settings: dict[str, Any], count: int
) -> None:
    updates = drawn(4, 9, 40)
    best = np.argsort(krum_scores(updates, 2))[:count]
    found = changed(rule_of("multi-krum", **settings), updates)
    np.testing.assert_allclose(found, updates[best].mean(axis=0, dtype=np.float64), rtol=1e-6)


def test_the_normaliser_does_not_depend_on_the_order_of_the_updates() -> None:
    # In float64, 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1.
    rule, distances = rule_of("multi-krum", byzantine=0), np.zeros((5, 5))
    found = set()
    for order in permutations([0.1, 0.2, 0.3, 0.7, 1.0]):
        stale = [Contribution(f"c{d}", "g", 5, 1, d) for d in order]
        population = Population([c.client for c in stale], (), [{}] * 5, {}, {}, Oracle())
        cohort = Cohort(1, stale, population, ParticipationHistory(), distances)
        found.add(rule.weigh(cohort, {}).normaliser)
    assert found == {0.6}


@pytest.mark.parametrize(("size", "f"), [(7, 1), (8, 1), (11, 2), (5, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_bulyan_is_the_algorithm_of_the_paper(seed: int, size: int, f: int) -> None:
    updates = drawn(seed, size, 30)
    found = changed(rule_of("bulyan", byzantine=f), updates)
    np.testing.assert_allclose(found, bulyan(updates, f), rtol=1e-12)


def test_bulyan_by_hand() -> None:
    # f = 1 of 7: the five selected are 0, 1, 2, 3 and 7. Their median is 2, and the three closest
    # are 1, 2 and 3.
    updates = np.array([[0], [1], [2], [3], [7], [50], [-90]], np.float32)
    rule = rule_of("bulyan", byzantine=1)
    assert weighed(rule, updates).weights == [1, 1, 1, 1, 1, 0, 0]
    assert changed(rule, updates) == [2.0]


# --- what holds for all of them ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ROBUST)
@pytest.mark.parametrize("parameters", [3, 2 * BLOCK + 1])
def test_the_order_of_the_updates_changes_no_bit(kind: str, parameters: int) -> None:
    rule, updates = rule_of(kind), drawn(5, 11, parameters)
    names = [f"c{place:02d}" for place in range(11)]
    before = weighed(rule, updates, names)
    order = np.random.default_rng(6).permutation(11)
    after = weighed(rule, updates[order], [names[place] for place in order])
    assert [before.weights[place] for place in order] == after.weights
    if isinstance(rule, Combining):
        found = changed(rule, updates[order], [names[place] for place in order])
        np.testing.assert_array_equal(found, changed(rule, updates, names))


@pytest.mark.parametrize("kind", ["krum", "multi-krum", "bulyan"])
def test_equal_scores_are_in_the_order_of_the_clients(kind: str) -> None:
    names = ["f", "b", "e", "a", "d", "g", "c"]
    settings = {"m": 1} if kind == "multi-krum" else {}
    weighing = weighed(rule_of(kind, **settings), np.ones((7, 3), np.float32), names)
    chosen = {name for name, weight in zip(names, weighing.weights, strict=True) if weight}
    assert chosen == (set("abcde") if kind == "bulyan" else {"a"})


@pytest.mark.parametrize("kind", ROBUST)
@pytest.mark.parametrize("factor", [-10.0, 1e6, -1e30])
def test_a_fifth_of_wrong_updates_does_not_lead_the_model_away(kind: str, factor: float) -> None:
    random = np.random.default_rng(7)
    honest = (1 + 0.1 * random.standard_normal((12, 200))).astype(np.float32)
    updates = np.concatenate([np.float32(factor) * honest[:3], honest])
    with np.errstate(over="raise", invalid="raise"):
        found = changed(rule_of(kind), updates)
    assert (found >= honest.min(axis=0)).all()
    assert (found <= honest.max(axis=0)).all()
    assert abs(np.mean(updates.astype(np.float64)) - 1) > 1  # the plain mean is led away


NEEDED = {"trimmed-mean": 7, "krum": 9, "multi-krum": 9, "bulyan": 15}
"""The fewest updates that tolerate three wrong ones."""


@pytest.mark.parametrize(("kind", "needed"), NEEDED.items())
def test_a_round_with_too_few_updates_is_empty_and_says_so(kind: str, needed: int) -> None:
    rule = rule_of(kind, byzantine=3)
    enough, few = (weighed(rule, drawn(8, size, 4)) for size in (needed, needed - 1))
    assert enough.normaliser > 0
    assert not enough.warnings
    assert few.normaliser == 0
    assert few.weights == [0.0] * (needed - 1)
    [warning] = few.warnings
    assert warning.startswith(
        f"a round with {needed - 1} updates is empty: the rule needs at least"
    )
    assert warning.endswith(f"{needed} to tolerate 3 wrong ones")


@pytest.mark.parametrize(("kind", "needed"), NEEDED.items())
@pytest.mark.parametrize(("missing", "refused"), [(0, False), (1, True)])
def test_sizes_of_rounds_that_are_never_enough_are_refused(
    kind: str, needed: int, missing: int, refused: bool
) -> None:
    conditions = Conditions(
        z=frozenset(), x=frozenset(), full=True, selection="all", lockstep=True, gradient=False,
        least=1, most=needed - missing,
    )  # fmt: skip
    reasons = list(rule_of(kind, byzantine=3).refusals(conditions))
    assert len(reasons) == refused
    assert all(f"needs at least {needed} updates" in reason for reason in reasons)


def scenario(rule: dict[str, Any], server: dict[str, Any], count: int = 9) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "robust",
            "task": {"name": "linear"},
            "server": {"rounds": 2, "aggregator": rule, **server},
            "groups": [{"name": "a", "count": count}],
        },
        "robust",
    )


BUFFERED = {"kind": "buffered", "k": 5, "concurrency": 9}
ALIKE = {**BUFFERED, "staleness_weight": "constant"}


@pytest.mark.parametrize(("rule", "server", "said"), [
    ({"kind": "krum", "byzantine": 3}, {}, ""),
    ({"kind": "krum", "byzantine": 4}, {}, "to tolerate 4 wrong ones, but at most 9 can count"),
    ({"kind": "krum", "byzantine": 3}, {"goal": 8}, "at most 8 can count"),
    ({"kind": "bulyan", "byzantine": 1}, {"selection": {"kind": "uniform", "k": 6}}, "at most 6"),
    ({"kind": "krum", "byzantine": 2}, {"mode": ALIKE}, "but at most 5 can count"),
    ({"kind": "krum", "byzantine": 1}, {"mode": ALIKE}, ""),
    ({"kind": "krum", "byzantine": 1}, {"mode": BUFFERED}, "the weights of 'krum' do not depend"),
    ({"kind": "median"}, {"mode": BUFFERED}, "set server.mode.staleness_weight = 'constant'"),
    ({"kind": "multi-krum", "byzantine": 1}, {"mode": BUFFERED}, ""),
    ({"kind": "median"}, {"mode": "opportunistic", "deadline_s": 5.0}, ""),
    ({"kind": "trimmed-mean", "byzantine_ratio": 0.45}, {}, ""),
    # Nine updates are too few for f = 4, but eight are enough for f = 3.
    ({"kind": "multi-krum", "byzantine_ratio": 0.3, "m": 2}, {"minimum": 9}, ""),
    ({"kind": "krum", "byzantine_ratio": 0.45}, {"minimum": 9}, "needs at least 11"),
    ({"kind": "krum", "byzantine_ratio": 0.45}, {}, "needs at least 11"),
    ({"kind": "krum", "byzantine_ratio": 0.34}, {}, ""),
])  # fmt: skip
def test_a_scenario_in_which_the_rule_cannot_work_is_refused(
    rule: dict[str, Any], server: dict[str, Any], said: str
) -> None:
    if not said:
        doctor.require(scenario(rule, server))
        return
    with pytest.raises(ConfigError, match=r"server\.aggregator") as refused:
        doctor.require(scenario(rule, server))
    assert said in str(refused.value)


# --- blocks --------------------------------------------------------------------------------------


def test_distances_are_those_of_whole_vectors_and_lose_no_small_ones() -> None:
    updates = drawn(9, 6, LONG)
    updates[3] = updates[2]
    updates[3, -1] += 0.25
    updates[4:] = 1e6  # far from zero, and close together
    updates[5, 7] += 1
    doubles = updates.astype(np.float64)
    expected = [[((a - b) ** 2).sum() for b in doubles] for a in doubles]
    found = squared_distances(readers(updates), LONG)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    assert found[2, 3] == pytest.approx(0.0625, rel=1e-5)
    assert found[4, 5] == 1


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_only_a_block_of_all_updates_is_read_at_a_time(size: int) -> None:
    read: list[tuple[int, int]] = []

    def reader(start: int, stop: int) -> np.ndarray:
        read.append((start, stop))
        return np.arange(start, stop, dtype=np.float32)

    def first(block: np.ndarray) -> np.ndarray:
        assert block.shape[0] == size
        assert block.nbytes <= 8 << 20
        return np.asarray(block[0], np.float64)

    found = combined([reader] * size, 3 * BLOCK, first)
    np.testing.assert_array_equal(found, np.arange(3 * BLOCK))
    assert read == [pair for pair in dict.fromkeys(read) for _ in range(size)]


def test_a_rule_that_combines_into_another_shape_or_nothing_fails_the_run() -> None:
    updates = np.ones((2, 3), np.float32)
    with pytest.raises(RunFailed, match=r"into an array of shape \(2, 3\); expected \(3,\)"):
        combined(readers(updates), 3, lambda block: np.asarray(block, np.float64))
    with pytest.raises(RunFailed, match="gave every update the weight 0"):
        combined([], 3, lambda block: np.asarray(block[0], np.float64))
