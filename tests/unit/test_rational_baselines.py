"""IncFL and AAggFF-S, each against a direct computation of its formula."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize  # type: ignore[import-untyped]

from muster.common.exchange import Valuation
from muster.common.seeds import FloatArray
from muster.server.aggregators import AGGREGATORS, Aggregator, Cohort, State, Weighing
from muster.server.fleet.devices import EnrolledDevice
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Oracle, Population
from muster.server.knowledge.solvers import least_quadratic, projected

CLIENTS = ["a", "b", "c"]


def rule_of(kind: str, **settings: object) -> Aggregator:
    rule = AGGREGATORS.parse({"kind": kind, **settings})
    assert isinstance(rule, Aggregator)
    return rule


def cohort(valuations: Mapping[str, Valuation], round: int = 1) -> Cohort:
    devices = {client: EnrolledDevice(client, "g", n, 1) for n, client in enumerate(CLIENTS)}
    people = Population(CLIENTS, [], [{}] * len(CLIENTS), devices, {}, Oracle())
    return Cohort(round, [], people, ParticipationHistory([]), valuations=valuations)


def reported(received: Sequence[float], own: Sequence[float | None]) -> dict[str, Valuation]:
    return {
        client: Valuation(0.5, 0.5, received_loss=loss, own_loss=local)
        for client, loss, local in zip(CLIENTS, received, own, strict=True)
    }


def alpha(weighing: Weighing) -> list[float]:
    return [weighing.recalled[client] for client in CLIENTS]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_incfl_weighs_by_the_slope_of_the_sigmoid_of_the_excess_loss() -> None:
    rule = rule_of("incfl")
    state = rule.initial_state(np.zeros(2, np.float32))
    first = rule.weigh(cohort(reported([2.0, 3.0, 4.0], [None] * 3)), state)
    assert alpha(first) == pytest.approx([0.25 / 0.751] * 3)  # nobody has a local model yet
    second = rule.weigh(cohort(reported([1.5, 1.0, 3.0], [1.0, 1.0, 0.5]), 2), first.state)
    q = [sigmoid(x) * (1 - sigmoid(x)) for x in (0.5, 0.0, 2.5)]
    assert alpha(second) == pytest.approx([each / (sum(q) + 1e-3) for each in q])
    # ρ stays that of the purely local model; b reports nothing, and keeps its excess.
    later = reported([1.2, 9.0, 1.0], [0.1, 0.1, 0.1])
    del later["b"]
    third = rule.weigh(cohort(later, 3), second.state)
    q = [sigmoid(x) * (1 - sigmoid(x)) for x in (0.2, 0.0, 0.5)]
    assert alpha(third) == pytest.approx([each / (sum(q) + 1e-3) for each in q])
    assert third.estimates["local_loss"] == {"a": 1.0, "b": 1.0, "c": 0.5}


def test_incfl_bears_losses_of_any_size() -> None:
    rule = rule_of("incfl", epsilon=0.5)
    state = rule.initial_state(np.zeros(2, np.float32))
    weighing = rule.weigh(cohort(reported([1e5, 0.0, 1.0], [1.0, 1e5, 1.0])), state)
    assert alpha(weighing) == pytest.approx([0.0, 0.0, 0.25 / 0.75])


CDF = {
    "normal": lambda x: 0.5 * math.erfc(-(x - 1) / math.sqrt(2)),
    "weibull": lambda x: 1 - math.exp(-x * x),
    "exponential": lambda x: 1 - math.exp(-x),
}


@pytest.mark.parametrize("response", CDF)
def test_aaggff_s_takes_the_online_newton_step(response: str) -> None:
    rule = rule_of("aaggff-s", response=response)
    state: State = rule.initial_state(np.zeros(2, np.float32))
    random, size = np.random.default_rng(1), len(CLIENTS)
    weights, steps = np.full(size, 1 / size), list[tuple[FloatArray, FloatArray]]()
    for round in range(1, 7):
        losses = random.uniform(0.2, 3.0, size) * [1.0, 2.0, 6.0]
        weighing = rule.weigh(cohort(reported(losses.tolist(), [None] * size), round), state)
        r = np.array([CDF[response](x) for x in losses / losses.mean()]) / size
        steps.append((-r / (1 + weights @ r), weights))

        def regret(p: FloatArray) -> float:
            sums = sum(g @ p + size / 8 * (g @ (p - q)) ** 2 for g, q in steps)
            return float(sums + 2 * p @ p)

        found = minimize(
            regret,
            weights,
            method="SLSQP",
            bounds=[(0, 1)] * size,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        assert alpha(weighing) == pytest.approx(found.x.tolist(), abs=1e-6)
        assert sum(alpha(weighing)) == pytest.approx(1, abs=1e-12)
        weights, state = np.array(alpha(weighing)), weighing.state
    assert weights[2] > weights[0] + 0.01, "the largest losses got no more weight"


def test_aaggff_s_keeps_the_last_loss_of_a_device_that_reports_none() -> None:
    rule = rule_of("aaggff-s")
    state = rule.initial_state(np.zeros(2, np.float32))
    nobody = rule.weigh(cohort({}), state)
    assert alpha(nobody) == pytest.approx([1 / 3] * 3)
    first = rule.weigh(cohort(reported([1.0, 2.0, 3.0], [None] * 3), 2), nobody.state)
    whole = rule.weigh(cohort(reported([0.5, 2.0, 3.0], [None] * 3), 3), first.state)
    part = rule.weigh(cohort({"a": Valuation(0.5, 0.5, received_loss=0.5)}, 3), first.state)
    assert alpha(part) == alpha(whole)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_the_projection_satisfies_the_conditions_of_the_nearest_point(values: list[float]) -> None:
    point = np.array(values)
    found = projected(point)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    shift = (point - found)[found > 1e-9]  # the same wherever the weight is positive …
    np.testing.assert_allclose(shift, shift[0], atol=1e-9)
    assert (point[found <= 1e-9] <= shift[0] + 1e-9).all()  # … and elsewhere at least that


def test_a_quadratic_of_a_bad_condition_reaches_the_conditions_of_its_optimum() -> None:
    random = np.random.default_rng(2)
    rows = random.standard_normal((40, 12))
    matrix, linear = 4 * np.eye(12) + 25 * rows.T @ rows, random.standard_normal(12) * 30
    weights = least_quadratic(matrix, linear, np.full(12, 1 / 12))
    gradient = matrix @ weights + linear
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(gradient[weights > 1e-9], gradient.min(), atol=1e-6)
