"""Measures of the study `usual-rules`: functions of one run, and a table of all runs."""

import math

import numpy as np
import pandas as pd

from muster.studies.claims import BySeed
from muster.studies.results import Result, Results
from muster.studies.usual_rules.fleet import COME, FEDAVG, GROUPS, NOISE, OFTEN
from muster.studies.usual_rules.known import WEIGHTS, known

BIAS, DISTANCE, LOSS, PREDICTED, SETTLED, UPDATES = (
    "bias", "distance", "loss of seldom", "predicted bias", "settled after", "updates a round",
)  # fmt: skip
MEASURES = (BIAS, PREDICTED, DISTANCE, LOSS, SETTLED, UPDATES)

_NEAR = 0.1


class UsualRulesMeasures:
    """The measures of all runs.

    Attributes:
        runs: a row for each run, with `part`, `rule`, `seed` and a column for each of `MEASURES`,
            NaN if the run did not end by itself.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        rows = [_row(result) for result in results]
        self.runs = pd.DataFrame(rows).reindex(columns=["part", "rule", "seed", *MEASURES])

    @property
    def rules(self) -> list[str]:
        """The rules that were run."""
        return list(self.runs["rule"].unique())

    def of(self, measure: str, part: str, rule: str) -> BySeed:
        """A column of `runs`, by seed."""
        rows = self.runs[(self.runs["part"] == part) & (self.runs["rule"] == rule)]
        return dict(zip(rows["seed"].tolist(), rows[measure].tolist(), strict=True))

    def by_rule(self, measure: str, part: str) -> dict[str, BySeed]:
        rows = self.runs[self.runs["part"] == part]
        return {rule: self.of(measure, part, rule) for rule in rows["rule"].unique()}

    def other_updates(self) -> BySeed:
        """The number of runs of a seed in which not as many devices came as the part states."""
        come = self.runs["part"].map(dict(COME)) + GROUPS[OFTEN].size
        other = (self.runs[UPDATES] != come).groupby(self.runs["seed"]).sum()
        return dict(zip(other.index.tolist(), other.astype(float).tolist(), strict=True))

    def moved_by_noise(self, part: str) -> BySeed:
        """The distance between the last models with noise and without, by seed.

        The devices that come are the same, so there is no other difference.
        """
        found = {}
        for seed in self.runs["seed"].unique().tolist():
            pair = [self._results.one(part=part, rule=rule, seed=seed) for rule in (NOISE, FEDAVG)]
            ended = all(result.ended for result in pair)
            found[seed] = _apart(*pair) / known(seed).unit if ended else math.nan
        return found

    def table(self) -> pd.DataFrame:
        """Means over the seeds, and the standard deviation of the bias."""
        rows = self.runs.groupby(["part", "rule"], sort=False)
        means = rows[list(MEASURES)].mean()
        means.insert(1, "sd of bias", rows[BIAS].std())
        return means.reset_index()


def _row(result: Result) -> dict[str, object]:
    found = measures(result) if result.ended else {}
    result.close()
    return {"part": result.part, **result.labels, "seed": result.seed, **found}


def measures(result: Result) -> dict[str, float]:
    """The measures of a run. All but the distance are those of its last model."""
    problem, theta = known(result.seed), result.vector.astype(np.float64)
    rule = str(result.labels["rule"])
    predicted = problem.bias(problem.limit(rule, result.part)) if rule in WEIGHTS else math.nan
    return {
        BIAS: problem.bias(theta),
        PREDICTED: predicted,
        DISTANCE: result.tail_mean("distance") / problem.unit,
        LOSS: problem.loss_of_seldom(theta),
        SETTLED: _settled(result, problem.unit),
        UPDATES: float(result.summary["updates_folded"] / result.summary["rounds"]),
    }


def _settled(result: Result, unit: float) -> float:
    """The last round whose distance is not within a tenth of the unit of the mean at the end."""
    away = (result.course("distance") - result.tail_mean("distance")).abs() > _NEAR * unit
    return float(max(away.index[away], default=0))


def _apart(one: Result, other: Result) -> float:
    return float(np.linalg.norm(one.vector.astype(np.float64) - other.vector))
