"""Measures of the study `correlated`: functions of one run, and tables of all runs."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.studies.claims import BySeed
from muster.studies.correlated import fleet
from muster.studies.correlated.fleet import AVERAGED, GROUPS, SCHEMES, SIZES, TransferLimit
from muster.studies.results import Measure, Result, Results
from muster.tasks.synthetic import OpenSynthetic

if TYPE_CHECKING:
    from muster.studies.study_run import Label

_DRAWN_EVERY = 10
"""Rounds between the points of a drawn curve."""

UNLIMITED, AVERAGING = "unlimited", "unlimited, FedAvg"
UNDER_LIMITS = ("biased", "debiased")
"""The schemes that are run under every limit."""


def name_of(limit: TransferLimit | None) -> str:
    """The label of a limit: "unlimited", or for example "collide-3"."""
    return UNLIMITED if limit is None else str(limit)


class CorrelatedMeasures:
    """The measures by scheme and limit.

    Attributes:
        limits: the limits of figure 2 that were run.
        surrogate_limits: the limits with which the surrogate was run; None means no limit.
        averaging: whether the classifier was run with several local steps, too.
    """

    def __init__(self, results: Results, rounds: int, limits: tuple[TransferLimit, ...]) -> None:
        self._results, self._rounds = results, rounds
        self._measured: dict[tuple[object, ...], BySeed] = {}
        self.limits = [limit for limit in limits if self._of("fig2", "biased", limit)]
        self.averaging = bool(results.where(part="fedavg"))
        self.surrogate_limits = [
            limit for limit in (None, *limits) if self._of("surrogate", "biased", limit)
        ]

    def _of(self, part: str, scheme: str, limit: TransferLimit | None) -> Results:
        return self._results.where(part=part, scheme=scheme, limit=name_of(limit))

    def _classifier(self, scheme: str, limit: TransferLimit | None) -> Results:
        return self._of("fig1" if limit is None else "fig2", scheme, limit)

    def of(self, measure: Measure, scheme: str, limit: TransferLimit | None = None) -> BySeed:
        """`measure` of the classifier's runs, by seed."""
        part = "fig1" if limit is None else "fig2"
        return self._by_seed(measure, part=part, scheme=scheme, limit=name_of(limit))

    def of_surrogate(
        self, measure: Measure, scheme: str, limit: TransferLimit | None = None
    ) -> BySeed:
        return self._by_seed(measure, part="surrogate", scheme=scheme, limit=name_of(limit))

    def of_averaging(self, measure: Measure, scheme: str) -> BySeed:
        """`measure` of the classifier's runs with several local steps."""
        return self._by_seed(measure, part="fedavg", scheme=scheme)

    def of_theorems(self, measure: Measure, scheme: str, rounds: int) -> BySeed:
        return self._by_seed(measure, part="theorems", scheme=scheme, rounds=rounds)

    def _by_seed(self, measure: Measure, **labels: "Label") -> BySeed:
        """`measure` of every seed. It is measured once, because a table opens many accounts."""
        key = (measure, *labels.values())
        if key not in self._measured:
            self._measured[key] = self._results.by_seed(measure, **labels)
        return self._measured[key]

    def courses(self, scheme: str, limit: TransferLimit | None = None) -> pd.DataFrame:
        """Training loss over the rounds, a column for each seed."""
        return self._courses(self._classifier(scheme, limit), "loss")

    def distances(self, scheme: str) -> pd.DataFrame:
        """The surrogate's distance to the fair optimum over the rounds, a column for each seed."""
        return self._courses(self._of("surrogate", scheme, None), "distance")

    def _courses(self, results: Results, measure: str) -> pd.DataFrame:
        grid = np.arange(0, self._rounds + 1, _DRAWN_EVERY)
        found = results.courses(lambda result: _held(result, measure).reindex(grid))
        return found.reindex(grid)

    def by_digit(self, scheme: str, limit: TransferLimit | None = None) -> pd.DataFrame:
        """Final loss of each digit, a column for each seed."""
        columns = {r.seed: _by_digit(r) for r in self._classifier(scheme, limit) if r.ended}
        return pd.DataFrame(columns, index=range(len(GROUPS)))

    def points(self, scheme: str, limit: TransferLimit | None) -> list[list[float]]:
        """The point where the surrogate ended, for every seed."""
        results = self._of("surrogate", scheme, limit)
        return [weights(result).tolist() for result in results if result.ended]

    @property
    def arms(self) -> Iterator[tuple[str, TransferLimit | None]]:
        """The pairs of scheme and limit with which the classifier was run."""
        for scheme in SCHEMES:
            yield scheme, None
        for limit in self.limits:
            for scheme in UNDER_LIMITS:
                yield scheme, limit

    def losses(self) -> pd.DataFrame:
        rows = []
        for scheme, limit in self.arms:
            finals, means = self.of(final, scheme, limit), self.of(mean_loss, scheme, limit)
            rows.append(_losses(scheme, name_of(limit), finals, means))
        for scheme in AVERAGED if self.averaging else ():
            finals, means = (self.of_averaging(of, scheme) for of in (final, mean_loss))
            rows.append(_losses(scheme, AVERAGING, finals, means))
        return pd.DataFrame(rows)

    def digits(self) -> pd.DataFrame:
        rows = []
        for scheme, limit in self.arms:
            by_digit = self.by_digit(scheme, limit).mean(axis=1)
            rows.append(
                {"scheme": scheme, "limit": name_of(limit)}
                | {f"digit {digit}": loss for digit, loss in by_digit.items()}
                | {"updates a round": mean(self.of(updates, scheme, limit))}
                | {"empty rounds": mean(self.of(empty, scheme, limit))}
                | {"ms a round": mean(self.of(milliseconds, scheme, limit))}
            )
        return pd.DataFrame(rows)

    def shares(self) -> pd.DataFrame:
        rows = []
        for limit in (None, *self.limits):
            truth = fleet.exact(limit)
            for group, name in enumerate(GROUPS):
                estimated = self.of(_estimate_of(group), "debiased", limit)
                rows.append(
                    {
                        "limit": name_of(limit),
                        "group": name,
                        "devices": SIZES[group],
                        "c": truth.shares[group],
                        "estimated c": mean(estimated),
                        "below delta": "yes" if truth.shares[group] < fleet.DELTA else "no",
                        "plain mean weighs": truth.biased[group],
                        "P(empty)": truth.empty,
                        "empty rounds": mean(self.of(empty, "debiased", limit)),
                    }
                )
        return pd.DataFrame(rows)

    def same_model(self, limit: TransferLimit) -> dict[int, bool]:
        """Whether the debiased scheme ends with the same model as without a limit, by seed."""
        free = {result.seed: _model_hash(result) for result in self._classifier("debiased", None)}
        limited = {r.seed: _model_hash(r) for r in self._of("fig2", "debiased", limit)}
        return {seed: found != "" and found == free.get(seed) for seed, found in limited.items()}


def _losses(scheme: str, limit: str, finals: BySeed, means: BySeed) -> dict[str, str | float]:
    """A row of the table of losses."""
    return (
        {"scheme": scheme, "limit": limit}
        | {f"seed {seed}": value for seed, value in finals.items()}
        | {"mean": mean(finals), "sd": _sd(finals)}
        | {"mean over rounds": mean(means), "its sd": _sd(means)}
    )


def final(result: Result) -> float:
    return result.final("loss")


def mean_loss(result: Result) -> float:
    """Mean of the training loss over the models that the rounds produced."""
    return float(_held(result, "loss").iloc[1:].mean())


def last_fifth(result: Result) -> float:
    """The share by which the loss fell in the last fifth of the rounds."""
    course = _held(result, "loss")
    return float(1 - course.iloc[-1] / course.loc[round(0.8 * course.index[-1])])


def mean_square_gradient(result: Result) -> float:
    """Mean of ‖∇F(θ_t)‖² over the models with which the rounds began, θ_0 to θ_{T−1}.

    ∇F = θ − θ*, because the curvature is 1, so the task's `distance` is the gradient's norm.
    """
    return float((_held(result, "distance").iloc[:-1] ** 2).mean())


def _held(result: Result, measure: str) -> "pd.Series[float]":
    """A measure of the model after each of the rounds, from 0.

    An empty round is not evaluated: the model stays as it was, and so does the value.
    """
    course = result.course(measure)
    return course.reindex(range(result.scenario.server.rounds + 1), method="ffill")


def weights(result: Result) -> npt.NDArray[np.float64]:
    """θ − θ₀ of a surrogate run: the weight of each group, shape (3,)."""
    return np.asarray(result.vector - _theta0(result), np.float64)


def distance_to(end: Sequence[float], unit: float) -> Measure:
    """A measure: the distance of a surrogate's end point to a point, in a unit."""
    return lambda result: float(np.linalg.norm(weights(result) - end)) / unit


def start(result: Result) -> npt.NDArray[np.float64]:
    """Where a run of the theorems starts: the initial θ − θ*, shape (3,).

    The initial θ is 0. θ* is θ₀, because the mean of the groups' minimisers is.
    """
    return -_theta0(result)


def _theta0(result: Result) -> npt.NDArray[np.float64]:
    read = result.scenario
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    assert isinstance(opened, OpenSynthetic)
    return np.asarray(opened.theta, np.float64)


@cache
def share_error(limit: TransferLimit | None) -> Measure:
    """A measure: |ĉ/c − 1|, the mean over the groups."""
    shares = fleet.exact(limit).shares

    def measure(result: Result) -> float:
        groups = np.split(_estimates(result), np.cumsum(SIZES)[:-1])
        ratios = [group.mean() / c for group, c in zip(groups, shares, strict=True)]
        return float(np.abs(np.array(ratios) - 1).mean())

    return measure


def empty(result: Result) -> float:
    """The share of rounds in which no device took part."""
    return float(result.summary["empty_rounds"] / result.summary["rounds"])


def updates(result: Result) -> float:
    return float(result.summary["updates_folded"] / result.summary["rounds"])


def milliseconds(result: Result) -> float:
    """The mean duration of a round in milliseconds."""
    return 1000 * result.seconds / float(result.summary["rounds"])


def mean(values: BySeed) -> float:
    """The mean of the finite values; NaN without any."""
    finite = [value for value in values.values() if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan


def _sd(values: BySeed) -> float:
    finite = [value for value in values.values() if math.isfinite(value)]
    return float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan


def _by_digit(result: Result) -> list[float]:
    groups = result.summary["final"]["groups"]
    return [float(groups[group]["loss"]) for group in GROUPS]


def _estimates(result: Result) -> npt.NDArray[np.float64]:
    """ĉ of every device in the newest round, in the order of the population."""
    rows = result.account.estimates
    rows = rows[(rows["name"] == "shares") & (rows["round"] == rows["round"].max())]
    by_client = rows.set_index("key")["value"]
    return np.asarray(by_client.loc[result.account.clients["client"]], np.float64)


@cache
def _estimate_of(group: int) -> Measure:
    """A measure: the mean of ĉ over the devices of a group."""
    first = sum(SIZES[:group])
    return lambda result: float(_estimates(result)[first : first + SIZES[group]].mean())


def _model_hash(result: Result) -> str:
    return str(result.summary.get("model_sha256") or "") if result.ended else ""
