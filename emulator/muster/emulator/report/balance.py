"""Covariates of the population, the enrolled devices and the updates: whom the model represents.

Every stage is a weighted sample of the same rows. For covariates Z, a row is a device: it weighs 1
in the population, and as often as its updates were folded among the updates. For covariates X, a
row is an answer of an enrolled device, because X is not known beyond the enrolled devices.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from muster.common.exchange import PROPENSITY
from muster.emulator.records.account import Account
from muster.emulator.report.intervals import Floats

POPULATION, ENROLLED, PARTICIPATING, WEIGHTED = (
    "population",
    "enrolled",
    "participating",
    "weighted",
)

STAGES = (POPULATION, ENROLLED, PARTICIPATING, WEIGHTED)
"""The stages from the target to the model. Participating: every folded update counts equally.
Weighted: every round counts equally, and within a round each update counts by its weight."""

IMBALANCE = 0.1
"""Standardised mean difference from which on a covariate counts as out of balance (Austin, Balance
diagnostics for comparing the distribution of baseline covariates, Statistics in Medicine 28, 2009).
"""


@dataclass(frozen=True)
class Covariate:
    """A numeric covariate, or one level of a categorical covariate, called `name=level`.

    Attributes:
        kind: "Z" or "X".
        values: the value of every row, shape (n,).
        weights: the weight of every row by stage, shape (n,); without the stage `population` if its
            rows are not known.
        target: the mean that the updates should have: that of the population; for X, that of the
            enrolled devices.
    """

    name: str
    kind: str
    values: Floats
    weights: Mapping[str, Floats]
    target: float

    @property
    def of(self) -> str:
        """The name of the covariate, without a level."""
        return self.name.partition("=")[0]

    @property
    def is_level(self) -> bool:
        """Whether this is a level of a categorical covariate: 1 if it applies, else 0."""
        return "=" in self.name

    @property
    def reference(self) -> str:
        """The stage closest to the target whose rows are known."""
        return POPULATION if POPULATION in self.weights else ENROLLED

    @cached_property
    def means(self) -> Mapping[str, float]:
        """The mean by stage; NaN for an empty stage. The population's mean is the target if its
        rows are not known."""
        found = {stage: _mean(self.values, weights) for stage, weights in self.weights.items()}
        return {POPULATION: self.target if self.kind == "Z" else math.nan, **found}

    @cached_property
    def deviation(self) -> float:
        """The standard deviation in the reference stage. It serves all stages, so that a difference
        changes only if the means change."""
        squares = (self.values - self.means[self.reference]) ** 2
        return math.sqrt(_mean(squares, self.weights[self.reference]))

    def difference(self, stage: str) -> float:
        """Standardised mean difference to the target; NaN if the reference does not vary."""
        distance = self.means[stage] - self.target
        return distance / self.deviation if self.deviation > 0 else math.nan

    def times_as_often(self) -> float:
        """How many times as often devices took part with a high value (or with the level) as
        without; NaN if that is not known.

        A value is high if it lies above the median of the reference.
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
    """All covariates Z, then all covariates X, in the order of the ledger."""
    sent = account.contributions
    folded = sent.loc[sent["outcome"] == "folded", ["round", "call_round", "client", "weight"]]
    of_round = folded.groupby("round")["weight"].transform("sum")
    # A round whose weights are all 0 did not change the model.
    folded["weight"] = (folded["weight"] / of_round.where(of_round > 0)).fillna(0.0)
    return [*_fixed(account, folded), *_seen(account, folded)]


def signed_text(difference: float) -> str:
    """For example "+0.62"; a dash for NaN."""
    return "–" if math.isnan(difference) else f"{round(difference, 2) + 0.0:+.2f}"


def _fixed(account: Account, folded: pd.DataFrame) -> list[Covariate]:
    # The server takes a missing covariate of a device to be 0, also in its means.
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
    # The true propensity that devices report to an oracle is no covariate.
    values = account.x.drop(columns=PROPENSITY, errors="ignore")
    weight = folded.set_index(["call_round", "client"])["weight"].reindex(values.index)
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
        numbers = values[name].to_numpy()[known]
        of_known = {stage: of_row[known] for stage, of_row in weights.items()}
        found.append(Covariate(name, "X", numbers, of_known, _mean(numbers, of_known[ENROLLED])))
    return found


def _mean(values: Floats, weights: Floats) -> float:
    total = weights.sum()
    return float(values @ weights / total) if total > 0 else math.nan
