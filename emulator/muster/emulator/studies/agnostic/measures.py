"""The measures of the study `agnostic`."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from muster.common.seeds import FloatArray
from muster.emulator.fleet.closed_forms import skew
from muster.emulator.studies.agnostic.fleet import (
    AGNOSTIC,
    DECAY,
    EQUAL,
    RULES,
    WEIGHTED,
    LeastSquares,
    rules_at,
    shares,
)
from muster.emulator.studies.claims import BySeed, difference
from muster.emulator.studies.results import Result, Results
from muster.emulator.studies.study_run import Label

PARTS = ("linear", "pictures")
"""The parts in which rules are compared."""

_BASE: Mapping[str, Label] = {"part": "linear", "rule": AGNOSTIC, "decay": DECAY}


class Measures:
    """The measures of all runs.

    Args:
        decays: the decays of the sweep over skew.
        horizons: the values of T whose gaps give the rate; one is `rounds`.
        rounds: number of rounds of all other runs.
    """

    def __init__(
        self, results: Results, decays: Sequence[float], horizons: Sequence[int], rounds: int
    ) -> None:
        self._results = results
        self._decays, self._horizons, self._rounds = decays, horizons, rounds

    def loss(self, part: str, rule: str, decay: float = DECAY) -> BySeed:
        """Σ p_i f_i of the models that the runs offered at the end, by seed."""
        labels: Mapping[str, Label] = {} if part == "small ball" else {"decay": decay}

        def last(result: Result) -> float:
            return float(objective(result, shares(decay)).iloc[-1])

        return self._results.by_seed(last, part=part, rule=rule, **labels)

    def differences(self, part: str) -> dict[float, BySeed]:
        """The loss of equation 10 minus that of agnostic averaging, by skew and seed."""
        return {
            skew(shares(decay)): difference(
                self.loss(part, WEIGHTED, decay), self.loss(part, AGNOSTIC, decay)
            )
            for decay in self._decays
        }

    def courses(self, part: str) -> dict[str, pd.DataFrame]:
        """Rule to Σ p_i f_i by round, with a column for each seed."""
        found = {}
        for rule in RULES:
            columns = {}
            for result in self._results.where(part=part, rule=rule, decay=DECAY):
                if result.ended:
                    columns[result.seed] = objective(result, shares())
                result.close()
            found[rule] = pd.DataFrame(columns)
        return found

    @cached_property
    def gaps(self) -> dict[int, BySeed]:
        """T to Σ p_i f_i of agnostic averaging minus its minimum, in `linear`."""
        return {
            rounds: self._results.by_seed(_gap, **self._of(rounds)) for rounds in self._horizons
        }

    def _of(self, rounds: int) -> Mapping[str, Label]:
        """The labels of a run with this number of rounds."""
        return _BASE if rounds == self._rounds else {"part": "rate", "rounds": rounds}

    def slopes(self) -> BySeed:
        """The slope of log gap on log T by least squares, by seed."""
        logs = np.log(self._horizons)
        found = {}
        for seed in self.gaps[self._rounds]:
            gaps = np.array([of[seed] for of in self.gaps.values()])
            fine = np.isfinite(gaps).all() and gaps.min() > 0
            found[seed] = float(np.polyfit(logs, np.log(gaps), 1)[0]) if fine else np.nan
        return found

    def misses(self, *, measured: bool) -> list[BySeed]:
        """The difference of a point to Σ p_i b_i in `quadratics`, for each coordinate, by seed.

        Args:
            measured: whether the point is the average of the iterates; otherwise it is Σ b_i/N.
        """

        def at(place: int) -> BySeed:
            def miss(result: Result) -> float:
                known = LeastSquares(result.scenario)
                there = offered(result) if measured else known.minimiser(EQUAL)
                return float((there - known.minimiser(shares()))[place])

            return self._results.by_seed(miss, part="quadratics")

        return [at(0), at(1)]

    def factors(self) -> BySeed:
        """The mean factor by which a round of equation 10 multiplied the parameters, by seed."""

        def factor(result: Result) -> float:
            rounds = result.account.rounds
            return float((rounds["weight_sum"] / rounds["normaliser"]).mean())

        return self._results.by_seed(factor, **{**_BASE, "rule": WEIGHTED})

    def endings(self, part: str) -> pd.DataFrame:
        """`ending` of agnostic averaging in `linear` or `quadratics`: a row for each seed."""
        labels = _BASE if part == "linear" else {"part": part}
        rows = [{"seed": result.seed, **ending(result)} for result in self._results.where(**labels)]
        return pd.DataFrame(rows)

    def losses(self) -> pd.DataFrame:
        """The table of final losses: a row for every part, skew and rule."""
        cells = [
            (part, rule, decay)
            for part in PARTS
            for decay in self._decays
            for rule in rules_at(decay)
        ]
        cells += [("small ball", rule, DECAY) for rule in (AGNOSTIC, WEIGHTED)]
        return pd.DataFrame([self._row(*cell) for cell in cells])

    def _row(self, part: str, rule: str, decay: float) -> dict[str, object]:
        found = self.loss(part, rule, decay)
        above = difference(found, self.loss(part, AGNOSTIC, decay))
        return {
            "part": part,
            "skew": skew(shares(decay)),
            "rule": rule,
            "loss": np.mean(list(found.values())),
            "above agnostic": np.mean(list(above.values())),
            "lowest": min(above.values()),
            "highest": max(above.values()),
        }


def objective(result: Result, weights: FloatArray) -> "pd.Series[float]":
    """Σ w_i f_i of each model version that was evaluated, by the round that produced it."""
    account = result.account
    measured = account.device_evaluations.pivot(index="version", columns="client", values="loss")
    losses = measured[list(account.clients["client"])]  # in the order of the population
    rounds = account.evaluations.set_index("version")["round"].loc[losses.index]
    return pd.Series(losses.to_numpy(np.float64) @ weights, index=rounds.to_numpy())


def _gap(result: Result) -> float:
    return ending(result)["gap"]


def offered(result: Result) -> FloatArray:
    return result.vector.astype(np.float64)


def ending(result: Result) -> Mapping[str, float]:
    """Distances of a run's final model to the minimisers of Σ p_i f_i and of Σ f_i/N, and the
    gaps of this model and of the second minimiser to the minimum of Σ p_i f_i.

    The values of the model are NaN if the run did not end by itself.
    """
    known = LeastSquares(result.scenario)
    mine, other = known.minimiser(shares()), known.minimiser(EQUAL)
    theta = offered(result) if result.ended else np.full_like(mine, np.nan)
    return {
        "distance": float(np.linalg.norm(theta - mine)),
        "distance to the other": float(np.linalg.norm(theta - other)),
        "gap": known.gap(theta, shares()),
        "gap of the other": known.gap(other, shares()),
    }
