"""Propensities: the probability that a device enrolls or takes part, learned from the devices that
did and those that did not.

A classifier learns P(taken | features); the weight of a device is 1/P. Two rules keep the weights
correct:

Rule 1: the propensity of participation is learned among the enrolled devices only, and multiplied
by the propensity of enrollment. If it were learned on all devices, it would contain the enrollment
a second time.

Rule 2: the rows of devices that did not take part are needed as much as those of devices that did.

FedIPW (Who Trains Matters), section 4: "either component may be estimated using logistic regression
or more flexible classifiers".
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from muster.common.bounds import Positive
from muster.common.overlap import overlap
from muster.common.plugins import Plugin, Registry
from muster.common.seeds import BoolArray, FloatArray

Fitted = Mapping[str, NDArray[Any]]
"""The result of a fit: named arrays, which the server commits with the aggregator's state. An
optional array `converged`, of shape () with the value 0 or 1, says whether the fit converged. The
result is finite and usable either way."""

_STEPS = 200

_TOLERANCE = 1e-9

_CONVERGED = 1e-7
"""A fit has converged if no entry of the gradient of the mean loss is larger."""

_OVERLAP = ("min", "p05", "median", "max")


class Classifier(Plugin):
    """A model that learns a propensity. Its settings are its fields."""

    def prepare(self) -> None:
        """Import the slow modules that `fit` needs."""

    @abstractmethod
    def fit(self, features: FloatArray, taken: BoolArray) -> Fitted:
        """Learn from n rows. The same rows give the same result.

        Args:
            features: shape (n, d), n > 0, finite, without a column of ones; d may be 0.
            taken: whether the device of each row enrolled or took part, shape (n,). It may be true
                for all rows, or for none.

        Raises:
            ValueError: there is no row, or a feature is not finite.
        """

    @abstractmethod
    def chance(self, fitted: Fitted, features: FloatArray) -> FloatArray:
        """Return P(taken | features) of each row, in [0, 1], shape (n,).

        Args:
            fitted: the result of `fit`.
            features: shape (n, d), with the columns of `fit`.
        """


class LogisticClassifier(Classifier):
    """Logistic regression: P = 1 / (1 + exp(−(c₀ + Σ c_j·x_j))).

    If k of n devices took part and k is 0 or n, every device has the chance (k + ½) / (n + 1).
    """

    ridge: Positive = 0.01
    """The factor of the penalty ½ · ridge · Σ c_j², which is added to the loss summed over the
    rows. c_j is the change of the log-odds per standard deviation of a column. The default is
    light: it matters only if columns are redundant, or if they separate the two outcomes without
    error."""

    def prepare(self) -> None:
        import sklearn.linear_model  # noqa: F401 - takes a second and 100 MiB

    def fit(self, features: FloatArray, taken: BoolArray) -> Fitted:
        """Fit the coefficients to n rows; see `Classifier.fit`.

        Returns:
            `coefficients`, shape (d + 1,), with the constant c₀ first; and `converged`, shape ().
        """
        n, d = features.shape
        if not n or not np.isfinite(features).all():
            raise ValueError(f"{n} rows of {d} features; expected at least one, all of them finite")
        # Standardised, so that neither the ridge nor the solver depends on units.
        mean, scale = features.mean(axis=0), features.std(axis=0)
        scale[scale <= 1e-12 * np.abs(features).max(axis=0)] = 1.0
        x = (features - mean) / scale
        k = np.count_nonzero(taken)
        if d == 0 or k in (0, n):
            add = 0.5 if k in (0, n) else 0.0  # half a row of each outcome: finite log-odds
            beta = np.zeros(d + 1)
            beta[0] = math.log((k + add) / (n - k + add))
            converged = True
        else:
            beta = self._regress(x, taken)
            converged = self._largest_slope(x, taken, beta) <= _CONVERGED
        coefficients = np.concatenate([beta[:1], beta[1:] / scale])
        coefficients[0] -= mean @ coefficients[1:]
        return {"coefficients": coefficients, "converged": np.array(converged)}

    def chance(self, fitted: Fitted, features: FloatArray) -> FloatArray:
        coefficients = fitted["coefficients"]
        return _sigmoid(coefficients[0] + features @ coefficients[1:])

    def _regress(self, x: FloatArray, taken: BoolArray) -> FloatArray:
        # Imported here because it takes a second, which a server without propensities can save.
        from sklearn.linear_model import LogisticRegression

        # Newton's method: exact to the last digits in about ten steps, at n·d² each.
        model = LogisticRegression(
            C=1 / self.ridge, solver="newton-cholesky", tol=_TOLERANCE, max_iter=_STEPS
        )
        with warnings.catch_warnings():  # `fit` checks convergence with `_largest_slope`
            warnings.simplefilter("ignore")
            model.fit(x, taken)
        return np.concatenate([model.intercept_, model.coef_[0]])

    def _largest_slope(self, x: FloatArray, taken: BoolArray, beta: FloatArray) -> float:
        """Return the largest entry of the gradient of the minimised function, divided by n."""
        excess = _sigmoid(beta[0] + x @ beta[1:]) - taken
        slopes = (x.T @ excess + self.ridge * beta[1:]) / len(x)
        return float(max(abs(excess.mean()), np.abs(slopes).max()))


CLASSIFIERS: Registry[Classifier] = Registry(
    "classifier", "muster.classifiers", {"logistic": LogisticClassifier}
)


def clipped(chances: FloatArray, floor: float = 1e-3) -> tuple[FloatArray, int]:
    """Return the chances raised to at least `floor`, and how many were below it."""
    return np.maximum(chances, floor), int(np.count_nonzero(chances < floor))


def overlap_of(chances: ArrayLike) -> dict[str, float]:
    """Return the minimum, 5th percentile, median and maximum of the chances; empty if there are
    none."""
    if not np.size(chances):
        return {}
    found = overlap(chances)
    return {name: found[name] for name in _OVERLAP}


def refit_due(rounds: int, last_fit: int, growth: float = 1.25) -> bool:
    """Return whether it is time to learn again: after 1, 2, 3, 4, 5, 7, 9, 12, … rounds.

    The rows grow with the rounds, so learning in every round would cost the square of their number.
    With a geometric schedule, all fits together cost 1 / (1 − 1/growth) times the last one.

    Args:
        rounds: number of rounds with something to learn from, including the current one.
        last_fit: number of such rounds at the last fit; 0 if there was none.
        growth: factor from one fit to the next, >= 1.
    """
    # The small allowance keeps 10 * 1.1 = 11.000000000000002 from waiting for a twelfth round.
    return rounds >= max(last_fit + 1, math.ceil(last_fit * growth - 1e-9))


def _sigmoid(log_odds: FloatArray) -> FloatArray:
    chance: FloatArray = np.exp(-np.logaddexp(0.0, -log_odds))
    return chance
