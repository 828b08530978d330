"""How likely devices are to enroll, or to take part: learned from who did.

A classifier learns P(taken | features); its weights are 1/P. Two rules keep them right:

Rule 1: participation is learned among the enrolled alone, and multiplied by the propensity of
enrollment. Learned on all devices it would hold enrollment a second time.

Rule 2: rows of those who did not come are as much needed as of those who did.

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
"""What a classifier learned: named arrays, which the server commits with an aggregator's state.
Where there is an array `converged`, of shape () and 0 or 1, it says whether learning came to its
end; what was learned is finite and can be used either way."""

_STEPS = 200

_TOLERANCE = 1e-9

_CONVERGED = 1e-7
"""Largest entry of the gradient of the mean loss at what counts as its minimum."""

_OVERLAP = ("min", "p05", "median", "max")


class Classifier(Plugin):
    """What learns a propensity; its settings are its fields."""

    def prepare(self) -> None:
        """Import what learning needs and takes long to."""

    @abstractmethod
    def fit(self, features: FloatArray, taken: BoolArray) -> Fitted:
        """Learn from n rows. The same rows give the same result.

        Args:
            features: shape (n, d), n > 0, finite; d may be 0. Without a column of ones.
            taken: whether the device of the row enrolled or took part, shape (n,); all or none of
                them may have.

        Raises:
            ValueError: there is no row, or a feature is not finite.
        """

    @abstractmethod
    def chance(self, fitted: Fitted, features: FloatArray) -> FloatArray:
        """P(taken | features) of each row, shape (n,); in [0, 1].

        Args:
            features: shape (n, d), the columns those of `fit`.
        """


class LogisticClassifier(Classifier):
    """Logistic regression: P = 1 / (1 + exp(−(c₀ + Σ c_j·x_j))).

    Where all took part, or nobody did, the chance of everybody is (k + ½) / (n + 1).
    """

    ridge: Positive = 0.01
    """Added to the loss, which is summed over rows, is ½ · ridge · Σ c_j², c_j the change of the
    log-odds per standard deviation of a column. Light: it decides only where columns say the same,
    or tell those who came from the others without error."""

    def prepare(self) -> None:
        import sklearn.linear_model  # noqa: F401 - a second, and hundred MiB

    def fit(self, features: FloatArray, taken: BoolArray) -> Fitted:
        """As promised by `Classifier`.

        Returns:
            `coefficients`, shape (d + 1,), the constant c₀ first; and `converged`.
        """
        n, d = features.shape
        if not n or not np.isfinite(features).all():
            raise ValueError(f"{n} rows of {d} features; expected at least one, all of them finite")
        # Standardised, so that neither the ridge nor the solver depends on units.
        middle, scale = features.mean(axis=0), features.std(axis=0)
        scale[scale <= 1e-12 * np.abs(features).max(axis=0)] = 1.0
        x = (features - middle) / scale
        k = np.count_nonzero(taken)
        if d == 0 or k in (0, n):
            add = 0.5 if k in (0, n) else 0.0  # a half of each outcome: finite log-odds
            beta = np.zeros(d + 1)
            beta[0] = math.log((k + add) / (n - k + add))
            converged = True
        else:
            beta = self._regressed(x, taken)
            converged = self._slope(x, taken, beta) <= _CONVERGED
        coefficients = np.concatenate([beta[:1], beta[1:] / scale])
        coefficients[0] -= middle @ coefficients[1:]
        return {"coefficients": coefficients, "converged": np.array(converged)}

    def chance(self, fitted: Fitted, features: FloatArray) -> FloatArray:
        coefficients = fitted["coefficients"]
        return _sigmoid(coefficients[0] + features @ coefficients[1:])

    def _regressed(self, x: FloatArray, taken: BoolArray) -> FloatArray:
        # Here, because it takes a second that a server without propensities need not wait.
        from sklearn.linear_model import LogisticRegression

        # Newton's method: exact to the last digits in about ten steps, at n·d² each.
        model = LogisticRegression(
            C=1 / self.ridge, solver="newton-cholesky", tol=_TOLERANCE, max_iter=_STEPS
        )
        with warnings.catch_warnings():  # how it ended is looked at by `_slope`
            warnings.simplefilter("ignore")
            model.fit(x, taken)
        return np.concatenate([model.intercept_, model.coef_[0]])

    def _slope(self, x: FloatArray, taken: BoolArray, beta: FloatArray) -> float:
        """Largest entry of the gradient of what is minimised, over n."""
        excess = _sigmoid(beta[0] + x @ beta[1:]) - taken
        slopes = (x.T @ excess + self.ridge * beta[1:]) / len(x)
        return float(max(abs(excess.mean()), np.abs(slopes).max()))


CLASSIFIERS: Registry[Classifier] = Registry(
    "classifier", "muster.classifiers", {"logistic": LogisticClassifier}
)


def clipped(chances: FloatArray, floor: float = 1e-3) -> tuple[FloatArray, int]:
    """Chances, at least `floor`, and how many were below it."""
    return np.maximum(chances, floor), int(np.count_nonzero(chances < floor))


def overlap_of(chances: ArrayLike) -> dict[str, float]:
    """Their least, 5th percentile, median and largest; nothing where there are none."""
    if not np.size(chances):
        return {}
    found = overlap(chances)
    return {name: found[name] for name in _OVERLAP}


def refit_due(rounds: int, last_fit: int, growth: float = 1.25) -> bool:
    """Whether it is time to learn again: after 1, 2, 3, 4, 5, 7, 9, 12, … rounds.

    Rows grow with the rounds, so learning in every one would cost the square of their number; in a
    geometric schedule all of it costs 1 / (1 − 1/growth) times the last.

    Args:
        rounds: that there is something to learn from, the present one included.
        last_fit: how many there were at the last time; 0: never.
        growth: factor from one time to the next, >= 1.
    """
    # The small allowance keeps 10 * 1.1 = 11.000000000000002 from waiting for a twelfth round.
    return rounds >= max(last_fit + 1, math.ceil(last_fit * growth - 1e-9))


def _sigmoid(log_odds: FloatArray) -> FloatArray:
    chance: FloatArray = np.exp(-np.logaddexp(0.0, -log_odds))
    return chance
