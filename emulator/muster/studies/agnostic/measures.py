"""The measures of the study `agnostic`."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from muster.common.seeds import FloatArray
from muster.studies.agnostic.fleet import (
    AGNOSTIC,
    DECAY,
    LOSSES,
    NORMALISED,
    QUADRATICS_DECAY,
    RULES,
    WEIGHTED,
)
from muster.studies.agnostic.known import EQUAL, Known, limits, shares, skew, twice_counted
from muster.studies.claims import BySeed, difference
from muster.studies.results import Result, Results

if TYPE_CHECKING:
    from muster.studies.study_run import Label

PARTS = ("linear", "pictures")
"""The parts in which rules are compared."""
SMALL_BALL = "small ball"

_BURN_IN = 1 / 3
"""Share of the rounds before courses are compared."""


class Measures:
    """The measures of all runs.

    Args:
        decays: part to the decays of its sweep over skew.
        horizons: the values of T whose gaps give the rate.
        small_ball: whether the part `small ball` was run.
    """

    def __init__(
        self,
        results: Results,
        decays: Mapping[str, Sequence[float]],
        horizons: Sequence[int],
        *,
        small_ball: bool,
    ) -> None:
        self._results = results
        self._decays, self._horizons, self._small_ball = decays, horizons, small_ball
        self._losses: dict[tuple[str, str, float], BySeed] = {}
        self._courses: dict[str, dict[str, pd.DataFrame]] = {}

    # --- comparisons of rules ---------------------------------------------------------------------

    def loss(self, part: str, rule: str, decay: float = DECAY) -> BySeed:
        """Σ p_i f_i of the models that the runs offered at the end, by seed."""
        cell = part, rule, decay
        if cell not in self._losses:
            self._losses[cell] = self._loss(*cell)
        return self._losses[cell]

    def _loss(self, part: str, rule: str, decay: float) -> BySeed:
        labels: Mapping[str, Label] = {} if part == SMALL_BALL else {"decay": decay}

        def last(result: Result) -> float:
            return float(objective(result, shares(decay)).iloc[-1])

        return self._results.by_seed(last, part=part, rule=rule, **labels)

    def difference(self, part: str, rule: str, decay: float = DECAY) -> BySeed:
        """The loss of a rule minus that of agnostic averaging, by seed."""
        return difference(self.loss(part, rule, decay), self.loss(part, AGNOSTIC, decay))

    def differences(self, part: str, rule: str) -> dict[float, BySeed]:
        """`difference` by skew and seed."""
        return {
            skew(shares(decay)): self.difference(part, rule, decay) for decay in self._decays[part]
        }

    def not_above(self, part: str, rule: str) -> BySeed:
        """The share of the evaluated rounds after the burn-in in which the loss of a rule is not
        above that of agnostic averaging, by seed."""
        found: dict[int, float] = {}
        ours, theirs = self.courses(part)[AGNOSTIC], self.courses(part)[rule]
        for seed in self.loss(part, rule):
            if seed not in ours or seed not in theirs:
                found[seed] = np.nan
                continue
            above = (theirs[seed] - ours[seed])[ours.index > _BURN_IN * ours.index.max()] > 0
            found[seed] = float(1 - above.mean())
        return found

    def courses(self, part: str) -> dict[str, pd.DataFrame]:
        """Rule to Σ p_i f_i by round, with a column for each seed."""
        if part not in self._courses:
            self._courses[part] = {
                rule: self._results.courses(
                    lambda result: objective(result, shares()), part=part, rule=rule, decay=DECAY
                )
                for rule in RULES
            }
        return self._courses[part]

    def factors(self) -> BySeed:
        """The mean factor by which a round of equation 10 multiplied the parameters, by seed."""

        def factor(result: Result) -> float:
            rounds = result.account.rounds
            return float((rounds["weight_sum"] / rounds["normaliser"]).mean())

        return self._results.by_seed(factor, part="linear", rule=WEIGHTED, decay=DECAY)

    # --- the rate ---------------------------------------------------------------------------------

    @cached_property
    def gaps(self) -> dict[str, dict[int, BySeed]]:
        """Loss and T to Σ p_i f_i of agnostic averaging minus its minimum, in `rate`."""

        def gap(result: Result) -> float:
            return Known(result.scenario).gap(offered(result), shares())

        return {
            loss: {
                rounds: self._results.by_seed(gap, part="rate", loss=loss, rounds=rounds)
                for rounds in self._horizons
            }
            for loss in LOSSES
        }

    def slopes(self, loss: str) -> BySeed:
        """The slope of log gap on log T by least squares, by seed."""
        logs, of_loss = np.log(self._horizons), self.gaps[loss]
        found = {}
        for seed in of_loss[self._horizons[0]]:
            gaps = np.array([by_seed[seed] for by_seed in of_loss.values()])
            fine = np.isfinite(gaps).all() and gaps.min() > 0
            found[seed] = float(np.polyfit(logs, np.log(gaps), 1)[0]) if fine else np.nan
        return found

    # --- limits -----------------------------------------------------------------------------------

    def off(self, part: str, other: str) -> BySeed:
        """The distance of the average to Σ p_i b_i, as a share of the distance between Σ p_i b_i
        and the mean of the b_i with other weights, by seed."""
        limit = limits()[part]

        def share(result: Result) -> float:
            return _off(result, limit.weights, limit.others[other])

        return self._results.by_seed(share, part=part, rule=AGNOSTIC)

    def off_twice_counted(self) -> BySeed:
        """The same of the rule that weighs by p_i / Σ p, with the weights that it has in the long
        run, and with p as the other weights."""
        at = twice_counted(QUADRATICS_DECAY)

        def share(result: Result) -> float:
            return _off(result, at, shares(QUADRATICS_DECAY))

        return self._results.by_seed(share, part="quadratics", rule=NORMALISED)

    def places(self, part: str) -> dict[str, list[FloatArray]]:
        """Points of a part minus Σ p_i b_i: the averages of the runs, and the means with other
        weights, for each seed; shape (2,)."""
        limit = limits()[part]
        found: dict[str, list[FloatArray]] = {
            "the average": [],
            **{name: [] for name in limit.others},
        }
        for result in self._results.where(part=part, rule=AGNOSTIC):
            known = Known(result.scenario)
            here = known.minimiser(limit.weights)
            if result.ended:
                found["the average"].append(offered(result) - here)
            for name, weights in limit.others.items():
                found[name].append(known.minimiser(weights) - here)
        return found

    def endings(self) -> pd.DataFrame:
        """`ending` of agnostic averaging in `linear`: a row for each seed."""
        results = self._results.where(part="linear", rule=AGNOSTIC, decay=DECAY)
        return pd.DataFrame([{"seed": result.seed, **ending(result)} for result in results])

    # --- tables -----------------------------------------------------------------------------------

    def losses(self) -> pd.DataFrame:
        """The table of final losses: a row for every part, skew and rule."""
        cells = [
            (part, rule, decay) for part in PARTS for decay in self._decays[part] for rule in RULES
        ]
        if self._small_ball:
            cells += [(SMALL_BALL, rule, DECAY) for rule in (AGNOSTIC, WEIGHTED)]
        return pd.DataFrame([self._row(*cell) for cell in cells])

    def _row(self, part: str, rule: str, decay: float) -> dict[str, object]:
        above = self.difference(part, rule, decay)
        return {
            "part": part,
            "skew": skew(shares(decay)),
            "rule": rule,
            "loss": np.mean(list(self.loss(part, rule, decay).values())),
            "above agnostic": np.mean(list(above.values())),
            "lowest": min(above.values()),
            "highest": max(above.values()),
        }

    def offs(self) -> pd.DataFrame:
        """The table of `off`: a row for every part and other weights, and one for
        `off_twice_counted`."""
        rows = [
            (part, "p", other, self.off(part, other))
            for part, limit in limits().items()
            for other in limit.others
        ]
        rows.append(("quadratics", "p, counted twice", "p", self.off_twice_counted()))
        return pd.DataFrame(
            [
                {
                    "part": part,
                    "expected weights": weights,
                    "other weights": other,
                    "share of the distance": np.mean(list(by_seed.values())),
                    "highest": max(by_seed.values()),
                }
                for part, weights, other, by_seed in rows
            ]
        )


def objective(result: Result, weights: FloatArray) -> "pd.Series[float]":
    """Σ w_i f_i of each model version that was evaluated, by the round that produced it."""
    account = result.account
    measured = account.device_evaluations.pivot(index="version", columns="client", values="loss")
    losses = measured[list(account.clients["client"])]  # in the order of the population
    rounds = account.evaluations.set_index("version")["round"].loc[losses.index]
    return pd.Series(losses.to_numpy(np.float64) @ weights, index=rounds.to_numpy())


def offered(result: Result) -> FloatArray:
    return result.vector.astype(np.float64)


def _off(result: Result, weights: FloatArray, other: FloatArray) -> float:
    known = Known(result.scenario)
    here, there = known.minimiser(weights), known.minimiser(other)
    return float(np.linalg.norm(offered(result) - here) / np.linalg.norm(there - here))


def ending(result: Result) -> Mapping[str, float]:
    """Distances of a run's final model to the minimisers of Σ p_i f_i and of Σ f_i/N, and the
    gaps of this model and of the second minimiser to the minimum of Σ p_i f_i.

    The values of the model are NaN if the run did not end by itself.
    """
    known = Known(result.scenario)
    mine, other = known.minimiser(shares()), known.minimiser(EQUAL)
    theta = offered(result) if result.ended else np.full_like(mine, np.nan)
    return {
        "distance": float(np.linalg.norm(theta - mine)),
        "distance to the other": float(np.linalg.norm(theta - other)),
        "gap": known.gap(theta, shares()),
        "gap of the other": known.gap(other, shares()),
    }
