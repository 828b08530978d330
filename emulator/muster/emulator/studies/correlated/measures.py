"""Measures of the study `correlated`: functions of one run, and tables of all runs."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from muster.emulator.fleet.lives import task_of
from muster.emulator.fleet.population import population
from muster.emulator.studies.claims import BySeed
from muster.emulator.studies.correlated import fleet as fleet
from muster.emulator.studies.correlated.fleet import GROUPS, SCHEMES, SIZES, Limit
from muster.emulator.studies.results import Measure, Result, Results
from muster.tasks.synthetic import OpenSynthetic

UNLIMITED = "unlimited"
UNDER_LIMITS = ("biased", "debiased")
"""The schemes that are run under every limit."""


def name_of(limit: Limit | None) -> str:
    """The label of a limit: "unlimited", or for example "collide-3"."""
    return UNLIMITED if limit is None else str(limit)


class CorrelatedMeasures:
    """The measures by scheme and limit.

    Attributes:
        limits: the limits of figure 2 that were run.
        surrogate_limits: the limits with which the surrogate was run; None means no limit.
    """

    def __init__(self, results: Results, rounds: int, limits: tuple[Limit, ...]) -> None:
        self._results, self._rounds = results, rounds
        self.limits = [limit for limit in limits if self._of("fig2", "biased", limit)]
        self.surrogate_limits = [
            limit for limit in (None, *limits) if self._of("surrogate", "biased", limit)
        ]

    def _of(self, part: str, scheme: str, limit: Limit | None) -> Results:
        return self._results.where(part=part, scheme=scheme, limit=name_of(limit))

    def _classifier(self, scheme: str, limit: Limit | None) -> Results:
        return self._of("fig1" if limit is None else "fig2", scheme, limit)

    def of(self, measure: Measure, scheme: str, limit: Limit | None = None) -> BySeed:
        """`measure` of the classifier's runs, by seed."""
        return self._classifier(scheme, limit).by_seed(measure)

    def of_surrogate(self, measure: Measure, scheme: str, limit: Limit | None = None) -> BySeed:
        return self._of("surrogate", scheme, limit).by_seed(measure)

    def courses(self, scheme: str, limit: Limit | None = None) -> pd.DataFrame:
        """Training loss over the rounds, a column for each seed."""
        return self._courses(self._classifier(scheme, limit), "loss")

    def distances(self, scheme: str) -> pd.DataFrame:
        """The surrogate's distance to the fair optimum over the rounds, a column for each seed."""
        return self._courses(self._of("surrogate", scheme, None), "distance")

    def _courses(self, results: Results, measure: str) -> pd.DataFrame:
        grid = np.arange(0, self._rounds + 1, fleet.EVALUATE_EVERY)
        columns = {}
        for result in results:
            if result.ended:
                # An empty round is not evaluated: the model stays as it was.
                columns[result.seed] = result.course(measure).reindex(grid, method="ffill").bfill()
            result.close()
        return pd.DataFrame(columns, index=grid)

    def by_digit(self, scheme: str, limit: Limit | None = None) -> pd.DataFrame:
        """Final loss of each digit, a column for each seed."""
        columns = {r.seed: _by_digit(r) for r in self._classifier(scheme, limit) if r.ended}
        return pd.DataFrame(columns, index=range(len(GROUPS)))

    def points(self, scheme: str, limit: Limit | None) -> list[list[float]]:
        """The point where the surrogate ended, for every seed."""
        results = self._of("surrogate", scheme, limit)
        return [weights(result).tolist() for result in results if result.ended]

    @property
    def arms(self) -> Iterator[tuple[str, Limit | None]]:
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
            rows.append(
                {"scheme": scheme, "limit": name_of(limit)}
                | {f"seed {seed}": value for seed, value in finals.items()}
                | {"mean": mean(finals), "sd": _sd(finals)}
                | {"mean over rounds": mean(means), "its sd": _sd(means)}
            )
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

    def same_model(self, limit: Limit) -> dict[int, bool]:
        """Whether the debiased scheme ends with the same model as without a limit, by seed."""
        free = {result.seed: _model_hash(result) for result in self._classifier("debiased", None)}
        limited = {r.seed: _model_hash(r) for r in self._of("fig2", "debiased", limit)}
        return {seed: found != "" and found == free.get(seed) for seed, found in limited.items()}


def final(result: Result) -> float:
    return result.final("loss")


def mean_loss(result: Result) -> float:
    """Mean of the training loss over the rounds, by trapezoids: empty rounds have no value."""
    course, rounds = result.course("loss"), result.scenario.server.rounds
    at, losses = np.append(course.index, rounds), np.append(course, course.iloc[-1])
    return float(np.trapezoid(losses, at) / rounds)


def last_fifth(result: Result) -> float:
    """The share by which the loss fell in the last fifth of the rounds."""
    course = result.course("loss")
    before = np.interp(0.8 * result.scenario.server.rounds, course.index.to_numpy(), course)
    return float(1 - course.iloc[-1] / before)


def weights(result: Result) -> npt.NDArray[np.float64]:
    """θ − θ₀ of a surrogate run: the weight of each group, shape (3,)."""
    read = result.scenario
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    assert isinstance(opened, OpenSynthetic)
    return np.asarray(result.vector - opened.theta, np.float64)


def worst_share(result: Result) -> float:
    """max |ĉ − c| without a limit."""
    return float(np.abs(_estimates(result) - np.repeat(fleet.exact().shares, SIZES)).max())


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


def _estimate_of(group: int) -> Measure:
    """A measure: the mean of ĉ over the devices of a group."""
    first = sum(SIZES[:group])
    return lambda result: float(_estimates(result)[first : first + SIZES[group]].mean())


def _model_hash(result: Result) -> str:
    return str(result.summary.get("model_sha256") or "") if result.ended else ""
