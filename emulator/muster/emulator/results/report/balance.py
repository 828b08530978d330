"""Whom the model is made of: covariates of the population, the enrolled and the updates.

Everything is a weighted sample of the same rows. For covariates Z a row is a device, which weighs
in the population 1, and among the updates as often as it was folded. For covariates X a row is an
answer of an enrolled device, for X has no population beyond the enrolled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from muster.common.exchange import PROPENSITY
from muster.emulator.results.account import Account
from muster.emulator.results.report.intervals import Floats

POPULATION, ENROLLED, PARTICIPATING, WEIGHTED = (
    "population",
    "enrolled",
    "participating",
    "weighted",
)

STAGES = (POPULATION, ENROLLED, PARTICIPATING, WEIGHTED)
"""From the target to what the model is made of. Participating: every folded update counts alike;
weighted: every round does, and in it an update as much as its weight."""

IMBALANCE = 0.1
"""Standardised mean difference from which on a covariate counts as out of balance (Austin, Balance
diagnostics for comparing the distribution of baseline covariates, Statistics in Medicine 28, 2009).
"""


@dataclass(frozen=True)
class Covariate:
    """A column of covariates; of a word there is one for each level, called `name=level`.

    Attributes:
        kind: "Z" or "X".
        values: of every row, shape (n,).
        weights: of the rows by stage, shape (n,); no population where its rows are not known.
        target: the mean that the updates' should be: the population's, of X that of the enrolled.
    """

    name: str
    kind: str
    values: Floats
    weights: Mapping[str, Floats]
    target: float

    @property
    def of(self) -> str:
        """What it is a column of."""
        return self.name.partition("=")[0]

    @property
    def is_level(self) -> bool:
        """Whether it is 1 where a word holds, and 0 elsewhere."""
        return "=" in self.name

    @property
    def reference(self) -> str:
        """The stage nearest to the target whose rows are known."""
        return POPULATION if POPULATION in self.weights else ENROLLED

    @cached_property
    def means(self) -> Mapping[str, float]:
        """By stage; NaN where nobody is in it. Of the population the target, if its rows are not
        known."""
        found = {stage: _mean(self.values, weights) for stage, weights in self.weights.items()}
        return {POPULATION: self.target if self.kind == "Z" else math.nan, **found}

    @cached_property
    def deviation(self) -> float:
        """The reference's standard deviation. It serves all stages, so that where a difference
        changes the means do."""
        squares = (self.values - self.means[self.reference]) ** 2
        return math.sqrt(_mean(squares, self.weights[self.reference]))

    def difference(self, stage: str) -> float:
        """Standardised mean difference to the target; NaN where the reference does not vary."""
        apart = self.means[stage] - self.target
        return apart / self.deviation if self.deviation > 0 else math.nan

    def times_as_often(self) -> float:
        """How much more often devices took part with a high value, of a word with the level, than
        with another; NaN where that is not known.

        High is what lies above the reference's median.
        """
        if np.isin(self.values, (0.0, 1.0)).all():
            took_part, there = self.means[PARTICIPATING], self.target
        elif self.kind == "Z" and self.reference != POPULATION:
            return math.nan
        else:
            high = self._high()
            took_part = _mean(high, self.weights[PARTICIPATING])
            there = _mean(high, self.weights[self.reference])
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.array([took_part, there]) / (1 - np.array([took_part, there]))
            return float(odds[0] / odds[1])

    def _high(self) -> Floats:
        of_reference = self.values[self.weights[self.reference] > 0]
        median = np.median(of_reference) if len(of_reference) else math.nan
        above = self.values > median
        return (above if above.any() else self.values >= median).astype(np.float64)


def covariates_of(account: Account) -> list[Covariate]:
    """All covariates Z, then all X, in the order in which the ledger has them."""
    sent = account.contributions
    folded = sent.loc[sent["outcome"] == "folded", ["round", "client", "weight"]]
    of_round = folded.groupby("round")["weight"].transform("sum")
    # A round whose weights are all 0 made no model.
    folded["weight"] = (folded["weight"] / of_round.where(of_round > 0)).fillna(0.0)
    return [*_fixed(account, folded), *_seen(account, folded)]


def signed_text(difference: float) -> str:
    """For example "+0.62"; a dash where there is none."""
    return "–" if math.isnan(difference) else f"{round(difference, 2) + 0.0:+.2f}"


def _fixed(account: Account, folded: pd.DataFrame) -> list[Covariate]:
    # Of a device that lacks a covariate the server takes it to be 0, in its means too.
    values = account.z.replace([math.inf, -math.inf], math.nan).fillna(0.0)
    by_client = folded.groupby("client")["weight"].agg(["size", "sum"])
    of_client = by_client.reindex(values.index, fill_value=0.0)
    enrolled = account.clients.set_index("client")["enrolled"].reindex(values.index)
    weights = {
        ENROLLED: enrolled.to_numpy(np.float64),
        PARTICIPATING: of_client["size"].to_numpy(np.float64),
        WEIGHTED: of_client["sum"].to_numpy(np.float64),
    }
    means: Mapping[str, float] = account.moments
    if len(values) == account.run.population:
        weights[POPULATION] = np.ones(len(values))
        means = {str(name): float(mean) for name, mean in values.mean().items()}
    return [
        Covariate(name, "Z", values[name].to_numpy(), weights, means.get(name, math.nan))
        for name in map(str, values)
    ]


def _seen(account: Account, folded: pd.DataFrame) -> list[Covariate]:
    values = account.x.drop(columns=PROPENSITY, errors="ignore")  # the truth, and no covariate
    weight = folded.set_index(["round", "client"])["weight"].reindex(values.index)
    weights = {
        ENROLLED: np.ones(len(values)),
        PARTICIPATING: weight.notna().to_numpy(np.float64),
        WEIGHTED: weight.fillna(0.0).to_numpy(np.float64),
    }
    found = []
    for name in map(str, values):
        known = values[name].notna().to_numpy()
        if not known.any():
            continue
        told = values[name].to_numpy()[known]
        of_known = {stage: of_row[known] for stage, of_row in weights.items()}
        found.append(Covariate(name, "X", told, of_known, _mean(told, of_known[ENROLLED])))
    return found


def _mean(values: Floats, weights: Floats) -> float:
    total = weights.sum()
    return float(values @ weights / total) if total > 0 else math.nan
