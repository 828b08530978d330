"""The measures of the study `fedipw`, by seed."""

import math
from functools import cached_property

import numpy as np
import pandas as pd

from muster.studies.claims import BySeed
from muster.studies.fedipw.fleet import RULES, STRENGTH, STRENGTHS
from muster.studies.fedipw.target import PopulationLoss
from muster.studies.fedipw.two_groups import promised, share_left
from muster.studies.fedipw.weights import WeightError, error_of
from muster.studies.results import Result, Results
from muster.studies.study import Options

TAIL = 0.3
"""Share of the rounds, at the end, over which gaps and distances are averaged."""

OPPOSED_EFFECTS = "opposed"
"""The label `effects` of the runs whose covariates have opposed effects."""


class FedIpwMeasures:
    """Gaps, distances and errors of weights of all runs, by seed."""

    def __init__(self, results: Results, options: Options) -> None:
        self._results = Results([result for result in results if result.part not in "EF"])
        self._two_groups = results.where(part="E")
        self._seeds = options.all_seeds
        self._noises = sorted(
            {float(r.labels["noise"]) for r in results.where(part="D", rule="calibrated")}
        )
        self._targets: dict[tuple[int, bool], PopulationLoss] = {}

    def _target(self, result: Result) -> PopulationLoss:
        """The target of a run, which depends neither on enrollment nor on the rule."""
        key = result.seed, "effects" in result.labels
        if key not in self._targets:
            self._targets[key] = PopulationLoss(result.scenario)
        return self._targets[key]

    def _gap(self, result: Result) -> float:
        return result.tail_mean("loss", TAIL) - self._target(result).least

    def gap(self, rule: str, strength: float = STRENGTH) -> BySeed:
        part = "A" if strength == STRENGTH else "B"
        return self._results.by_seed(self._gap, part=part, rule=rule, strength=strength)

    def calibrated_gap(self, moments: str) -> BySeed:
        """The gap of calibration on exact means: of all covariates, their signs, or the first."""
        if moments == "all":
            return self._results.by_seed(self._gap, part="D", rule="calibrated", noise=0.0)
        return self._results.by_seed(self._gap, part="C", moments=moments)

    def opposed_gap(self, rule: str) -> BySeed:
        """The gap where the covariates have opposed effects."""
        return self._results.by_seed(self._gap, part="C", rule=rule, effects=OPPOSED_EFFECTS)

    def distance(self, rule: str, noise: float | None = None) -> BySeed:
        """The distance to the optimum by seed; with `noise`, that of the rule in part D."""
        if noise is not None:
            return self._results.by_seed(_distance, part="D", rule=rule, noise=noise)
        found = self._results.by_seed(_distance, part="A", rule=rule)
        if self._results.where(part="D", rule=rule):
            found.update(self._results.by_seed(_distance, part="D", rule=rule))
        return found

    def noises(self) -> dict[float, BySeed]:
        """The distance to the optimum by τ, for the seeds with which every τ was run."""
        return {tau: self._compared(self.distance("calibrated", tau)) for tau in self._noises}

    def references(self) -> dict[str, BySeed]:
        """The distance to the optimum of rules that know the population, for the same seeds."""
        rules = ("participation-ipw", "fedipw")
        return {rule: self._compared(self.distance(rule)) for rule in rules}

    def _compared(self, values: BySeed) -> BySeed:
        return {seed: value for seed, value in values.items() if seed in self._seeds}

    @cached_property
    def _errors(self) -> dict[tuple[str, int], WeightError]:
        """The errors of the weights of part A, by rule and seed."""
        found = {}
        for result in self._results.where(part="A"):
            if result.ended:
                found[str(result.labels["rule"]), result.seed] = error_of(result)
            result.close()
        return found

    def scatter(self, rule: str) -> BySeed:
        """The standard deviation of ln ρ over the updates of a run of part A."""
        return self._results.by_seed(lambda run: self._error(run).scatter, part="A", rule=rule)

    def largest_error(self, rule: str) -> BySeed:
        """The largest |ρ − 1| over the updates of a run of part A."""
        return self._results.by_seed(lambda run: self._error(run).largest, part="A", rule=rule)

    def _error(self, result: Result) -> WeightError:
        return self._errors[str(result.labels["rule"]), result.seed]

    def share_of_bound(self, rule: str) -> BySeed:
        """The gap of a run of part A as a share of the bound ½ ε²G²/μ of its weights' error."""
        return self._results.by_seed(
            lambda result: self._gap(result) / self._bound(result), part="A", rule=rule
        )

    def _bound(self, result: Result) -> float:
        """½ ε²G²/μ, with the root mean square error of the weights and G at the last model."""
        target, theta = self._target(result), result.vector.astype(np.float64)
        epsilon = self._error(result).root_mean_square
        return epsilon**2 * target.heterogeneity(theta) / (2 * target.curvature(theta))

    def two_devices(self) -> dict[float, BySeed]:
        """What two devices with wrong weights leave, as a multiple of ½ ε²G²/μ, by ε and seed."""
        runs = self._two_groups.where(rule="weighted-normalised")
        return {
            epsilon: self._two_groups.by_seed(
                share_left, rule="weighted-normalised", epsilon=epsilon
            )
            for epsilon in sorted({float(run.labels["epsilon"]) for run in runs})
        }

    def two_groups(self, rule: str) -> BySeed:
        """What a rule leaves two groups that take part unequally often, as a multiple of it."""
        return self._two_groups.by_seed(share_left, rule=rule)

    def strengths(self) -> dict[str, dict[float, BySeed]]:
        """The gap by rule and strength, for the pairs that were run."""
        run = {
            (str(r.labels["rule"]), float(r.labels["strength"]))
            for r in self._results
            if r.part in "AB"
        }
        return {
            rule: {s: self.gap(rule, s) for s in STRENGTHS if (rule, s) in run} for rule in RULES
        }

    def means(self) -> dict[str, BySeed]:
        """The gap by rule, then by the means on which calibration was based."""
        return {
            **{rule: self.gap(rule) for rule in RULES},
            "calibrated": self.calibrated_gap("all"),
            "on signs": self.calibrated_gap("signs"),
            "on z1 alone": self.calibrated_gap("first"),
        }

    def courses(self) -> dict[str, pd.DataFrame]:
        """Rule to the gap by round, with a column for each seed."""

        def gaps(result: Result) -> "pd.Series[float]":
            return result.course("loss") - self._target(result).least

        return {rule: self._results.courses(gaps, part="A", rule=rule) for rule in RULES}

    def means_table(self) -> pd.DataFrame:
        """The means over the seeds of `table`, and how many seeds there are."""
        keys = ["part", "rule", "moments", "effects", "strength", "noise"]
        runs = self.table()
        if runs.empty:
            return runs
        groups = runs.groupby(keys, sort=False, dropna=False)
        means = groups[["first gap", "gap", "distance"]].mean()
        return means.assign(seeds=groups.size()).reset_index()

    def table(self) -> pd.DataFrame:
        """A row for each run of parts A to D."""
        rows = []
        for result in self._results:
            if not result.ended:
                continue
            labels = result.labels
            rows.append(
                {
                    "part": result.part,
                    "rule": labels["rule"],
                    "moments": labels.get("moments", ""),
                    "effects": labels.get("effects", ""),
                    "strength": labels["strength"],
                    "noise": labels.get("noise", math.nan),
                    "seed": result.seed,
                    "first gap": float(result.course("loss").iloc[0]) - self._target(result).least,
                    "gap": self._gap(result),
                    "distance": _distance(result),
                    "effective size": float(result.account.rounds["effective_size"].mean()),
                    "folded a round": float(result.account.rounds["folded"].mean()),
                }
            )
            result.close()
        return pd.DataFrame(rows)

    def errors_table(self) -> pd.DataFrame:
        """A row for each run of part A: the errors of its weights, and the bound that follows."""
        rows = []
        for result in self._results.where(part="A"):
            if not result.ended:
                continue
            error = self._error(result)
            rows.append(
                {
                    "rule": str(result.labels["rule"]),
                    "seed": result.seed,
                    "root mean square of ρ − 1": error.root_mean_square,
                    "largest |ρ − 1|": error.largest,
                    "scatter of ln ρ": error.scatter,
                    "gap": self._gap(result),
                    "bound": self._bound(result),
                }
            )
            result.close()
        return pd.DataFrame(rows)

    def two_groups_table(self) -> pd.DataFrame:
        """A row for each run of part E: its gap, and the gap of the proposition."""
        rows = []
        for result in self._two_groups:
            if not result.ended:
                continue
            epsilon = float(result.labels["epsilon"])
            share = share_left(result)
            rows.append(
                {
                    "rule": result.labels["rule"],
                    "epsilon": epsilon,
                    "seed": result.seed,
                    "gap": share * promised(epsilon),
                    "½ε²G²/μ": promised(epsilon),
                    "share": share,
                }
            )
            result.close()
        return pd.DataFrame(rows)


def _distance(result: Result) -> float:
    return result.tail_mean("distance", TAIL)
