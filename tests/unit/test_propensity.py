import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
from pydantic import ValidationError

from muster.common.seeds import BoolArray, FloatArray, stream
from muster.server.knowledge.propensity import (
    CLASSIFIERS,
    Classifier,
    Fitted,
    LogisticClassifier,
    clipped,
    overlap_of,
    refit_due,
)


def sigmoid(z: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-z))


def drawn(n: int, coefficients: list[float], seed: int = 1) -> tuple[FloatArray, BoolArray]:
    """Normal features, and who came with the chance that they say."""
    random = stream(seed, "rows")
    features = random.standard_normal((n, len(coefficients) - 1))
    taken = random.random(n) < sigmoid(coefficients[0] + features @ coefficients[1:])
    return features, taken


def newton(features: FloatArray, taken: BoolArray, ridge: float) -> FloatArray:
    """Logistic regression as it is written in books; the ridge is per standard deviation."""
    x = np.column_stack([np.ones(len(features)), features])
    penalty = ridge * np.array([0.0, *features.var(axis=0)])
    beta = np.zeros(x.shape[1])
    for _ in range(12):
        p = sigmoid(x @ beta)
        gradient = x.T @ (p - taken) + penalty * beta
        hessian = (x.T * (p * (1 - p))) @ x + np.diag(penalty)
        beta = beta - np.linalg.solve(hessian, gradient)
    return beta


def fitted(features: FloatArray, taken: BoolArray, ridge: float = 0.01) -> FloatArray:
    """Coefficients, of which all is promised."""
    found = LogisticClassifier(ridge=ridge).fit(features, taken)
    assert found["converged"]
    assert np.isfinite(found["coefficients"]).all()
    return found["coefficients"]


@pytest.mark.slow
@pytest.mark.parametrize("ridge", [0.01, 30.0])
def test_a_fit_is_exact(ridge: float) -> None:
    features, taken = drawn(200_000, [-1.0, 0.5, -0.3, 0.0, 1.0, 0.2, 0.1])
    features = features * [1, 10, 0.1, 1, 3, 1] + [0, 5, 0, -2, 0, 1]
    found = fitted(features, taken, ridge)
    np.testing.assert_allclose(found, newton(features, taken, ridge), atol=1e-6)


def test_coefficients_are_recovered_within_their_standard_errors() -> None:
    truth = [-0.5, 1.0, -0.7, 0.3]
    features, taken = drawn(20_000, truth)
    x = np.column_stack([np.ones(len(features)), features])
    p = sigmoid(x @ np.array(truth))
    errors = np.sqrt(np.diag(np.linalg.inv((x.T * (p * (1 - p))) @ x)))
    assert (np.abs(fitted(features, taken) - truth) < 4 * errors).all()


def test_chances_are_those_of_the_coefficients() -> None:
    found = {"coefficients": np.array([math.log(3), 1.0, -1.0])}
    chances = LogisticClassifier().chance(
        found, np.array([[0, 0], [1, 1], [2000, 0], [0, 2000]], float)
    )
    np.testing.assert_allclose(chances, [0.75, 0.75, 1, 0])


def test_units_decide_nothing() -> None:
    features, taken = drawn(500, [0.2, 1.0, -1.0])
    units = np.array([1e9, 1e-6])
    in_bytes = fitted(features * units + [4e9, 0], taken, ridge=1.0)
    chances = LogisticClassifier().chance({"coefficients": in_bytes}, features * units + [4e9, 0])
    plain = LogisticClassifier(ridge=1.0)
    np.testing.assert_allclose(
        chances, plain.chance(plain.fit(features, taken), features), rtol=1e-6
    )


@pytest.mark.parametrize("all_or_none", [True, False])
@pytest.mark.parametrize("d", [0, 2])
def test_where_all_or_none_came_everybody_has_nearly_that_chance(all_or_none: bool, d: int) -> None:
    features = np.arange(9.0 * d).reshape(9, d)
    found = fitted(features, np.full(9, all_or_none))
    chances = LogisticClassifier().chance({"coefficients": found}, features)
    np.testing.assert_allclose(chances, 0.95 if all_or_none else 0.05)


def test_without_features_the_chance_is_the_share_that_came() -> None:
    found = fitted(np.zeros((8, 0)), np.arange(8) < 2)
    np.testing.assert_allclose(found, [math.log(2 / 6)])
    np.testing.assert_allclose(
        LogisticClassifier().chance({"coefficients": found}, np.zeros((3, 0))), [0.25] * 3
    )


def test_columns_that_say_the_same_share_what_they_say() -> None:
    # A word as 0/1 columns, all its levels, and one of them twice: os=14 + os=15 = 1.
    os15 = (stream(3, "os").random(2000) < 0.5).astype(float)
    taken = stream(3, "taken").random(2000) < 0.2 + 0.5 * os15
    found = fitted(np.column_stack([1 - os15, os15, os15]), taken)
    assert found[2] == pytest.approx(found[3], abs=1e-6)
    plain = fitted(os15[:, np.newaxis], taken)
    for level in (0.0, 1.0):
        log_odds = found[0] + found[1:] @ [1 - level, level, level]
        assert log_odds == pytest.approx(plain[0] + plain[1] * level, abs=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_a_column_that_never_changes_says_nothing(value: float) -> None:
    features, taken = drawn(300, [0.5, 1.0])
    found = fitted(np.column_stack([features, np.full(300, value)]), taken)
    np.testing.assert_allclose(found, [*fitted(features, taken), 0.0], atol=1e-9)


@pytest.mark.parametrize("ridge", [1.0, 0.01, 1e-8])
def test_who_can_be_told_apart_without_error_still_has_finite_odds(ridge: float) -> None:
    z = np.linspace(-1, 1, 40)[:, np.newaxis]
    found = fitted(z, z[:, 0] > 0, ridge)
    chances = LogisticClassifier().chance({"coefficients": found}, z)
    assert found[1] > 3
    assert ((chances > 0.5) == (z[:, 0] > 0)).all()


def test_a_fit_that_did_not_come_to_its_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = sklearn.linear_model.LogisticRegression

    def impatient(**options: Any) -> Any:
        return solver(**{**options, "max_iter": 1})

    monkeypatch.setattr(sklearn.linear_model, "LogisticRegression", impatient)
    found = LogisticClassifier().fit(*drawn(500, [-2.0, 3.0]))
    assert not found["converged"]
    assert np.isfinite(found["coefficients"]).all()


@pytest.mark.parametrize("features", [np.zeros((0, 2)), np.array([[1.0], [np.nan]])])
def test_rows_that_teach_nothing_are_refused(features: FloatArray) -> None:
    with pytest.raises(ValueError, match="expected at least one, all of them finite"):
        LogisticClassifier().fit(features, np.arange(len(features)) > 0)


def test_the_same_rows_give_the_same_bits() -> None:
    rows = drawn(3000, [0.1, 0.2, 0.3])
    first, second = LogisticClassifier().fit(*rows), LogisticClassifier().fit(*rows)
    np.testing.assert_array_equal(first["coefficients"], second["coefficients"])


def test_a_ridge_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to"):
        LogisticClassifier(ridge=0.0)


class Share(Classifier):
    """The share that came, whoever they are."""

    def fit(self, features: FloatArray, taken: BoolArray) -> Fitted:
        return {"share": np.array(taken.mean())}

    def chance(self, fitted: Fitted, features: FloatArray) -> FloatArray:
        return np.full(len(features), float(fitted["share"]))


def test_a_classifier_of_ones_own_is_named_like_any_plug_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert CLASSIFIERS.parse({"kind": "logistic", "ridge": 0.5}) == LogisticClassifier(
        kind="logistic", ridge=0.5
    )
    monkeypatch.setitem(sys.modules, "own", sys.modules[__name__])
    own = CLASSIFIERS.parse("own:Share")
    assert isinstance(own, Share)
    found = own.fit(np.zeros((4, 1)), np.array([True, False, False, False]))
    np.testing.assert_array_equal(own.chance(found, np.zeros((2, 1))), [0.25, 0.25])


def test_the_module_alone_imports_nothing_slow() -> None:
    program = "import sys, muster.server.knowledge.propensity; print('sklearn' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "False\n"


def test_tiny_chances_are_clipped_and_counted() -> None:
    chances, few = clipped(np.array([0.0, 5e-4, 1e-3, 0.5]))
    np.testing.assert_array_equal(chances, [1e-3, 1e-3, 1e-3, 0.5])
    assert few == 2
    assert clipped(np.array([0.2, 0.3]), floor=0.25)[1] == 1


def test_overlap_has_four_numbers_or_none() -> None:
    assert overlap_of(np.linspace(0, 1, 101)) == {"min": 0, "p05": 0.05, "median": 0.5, "max": 1}
    assert overlap_of(np.zeros(0)) == {}


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        (1.25, [1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 24, 30, 38]),
        (2.0, [1, 2, 4, 8, 16, 32]),
        (1.1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37]),
        (1.0, list(range(1, 41))),
    ],
)
def test_refits_become_rarer_as_rounds_go_by(growth: float, expected: list[int]) -> None:
    last, fits = 0, []
    for rounds in range(1, 41):
        if refit_due(rounds, last, growth):
            last = rounds
            fits.append(rounds)
    assert fits == expected


def test_participation_learned_on_everybody_corrects_for_nothing() -> None:
    # What a round's weighted mean of Z is, where it should be 0. Learned on all devices, the
    # propensity of participation holds enrollment already; times that of enrollment, what is
    # corrected twice is as wrong as what is not corrected at all, on the other side.
    random, n, rounds = stream(5, "selection"), 10_000, 20
    z, x = random.standard_normal(n), random.standard_normal((rounds, n))
    enrolled = random.random(n) < sigmoid(-0.5 + 1.5 * z)
    took_part = enrolled & (random.random((rounds, n)) < sigmoid(z + x - 1))

    logistic = LogisticClassifier()
    enrollment = logistic.chance(logistic.fit(z[:, np.newaxis], enrolled), z[:, np.newaxis])

    def learned(among: BoolArray) -> Callable[[FloatArray], FloatArray]:
        features = np.column_stack([np.tile(z[among], rounds), x[:, among].ravel()])
        fit = logistic.fit(features, took_part[:, among].ravel())
        return lambda of: logistic.chance(fit, of)

    def bias(weights: Callable[[FloatArray, BoolArray], FloatArray]) -> float:
        means = []
        for in_round, came in zip(x, took_part, strict=True):
            w = weights(np.column_stack([z, in_round])[came], came)
            means.append(np.average(z[came], weights=w))
        return float(np.mean(means))

    right, wrong = learned(enrolled), learned(np.ones(n, dtype=np.bool_))
    participation_only = bias(lambda of, came: 1 / right(of))
    assert bias(lambda of, came: np.ones(len(of))) > 0.8
    assert participation_only > 0.5
    assert abs(bias(lambda of, came: 1 / (enrollment[came] * right(of)))) < 0.1
    assert bias(lambda of, came: 1 / (enrollment[came] * wrong(of))) < -0.7 * participation_only
