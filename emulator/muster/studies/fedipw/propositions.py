"""Propositions 4.1 and 4.2: the mean of many rounds' steps, from one model.

The steps are so short that the model hardly moves, so all updates of a device are the same. The sum
of a run's steps is then the sum of as many draws of the aggregate, which the propositions compare
with the mean update of the population. Their estimator, equations 11 and 12, divides by N: it is
that of Horvitz and Thompson. The rules of the other parts divide by the sum of the weights (Hájek).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from muster.common.seeds import FloatArray
from muster.studies.claims import BySeed, Claim, close, greater, grows
from muster.studies.fedipw.fleet import EFFECTS, RULES, WEAK, scenario
from muster.studies.fedipw.target import PopulationLoss
from muster.studies.fedipw.weights import error_of
from muster.studies.results import Result, Results
from muster.studies.study_run import Label, StudyRun

NAIVE, HAJEK = "fedavg", "oracle-ipw by the weights"
TRUE, ESTIMATED = "oracle-ipw by N", "fedipw by N"
_BY_POPULATION = {"normalise": "horvitz-thompson"}
ESTIMATORS: Mapping[str, Mapping[str, Any]] = {
    NAIVE: RULES["fedavg"],
    HAJEK: RULES["oracle-ipw"],
    TRUE: {**RULES["oracle-ipw"], **_BY_POPULATION},
    ESTIMATED: {**RULES["fedipw"], **_BY_POPULATION},
}
DEVICES, SIZES, LENGTHS = 200, (50, 200, 800), (3, 10, 30)
"""N of the unbiasedness, N of the sweep, and the rounds of a run after which weights are looked at.
"""
RATE, _ROUNDS = 1e-5, max(LENGTHS)

_UNBIASED = 0.2
PULLED = np.sum(list(EFFECTS.values()), axis=0)
PULLED /= np.linalg.norm(PULLED)
"""The direction in which the covariates that selection prefers move the data."""


def runs_of(seed: int, more: bool = False) -> Iterator[StudyRun]:
    """The runs of a seed; with `more`, only those for Proposition 4.1."""
    for rule in (NAIVE, HAJEK):
        yield _run(seed, rule, DEVICES)
    for devices in (DEVICES,) if more else SIZES:
        yield _run(seed, TRUE, devices)
    for devices in () if more else SIZES:
        yield _run(seed, ESTIMATED, devices)


def _run(seed: int, rule: str, devices: int) -> StudyRun:
    """A run with one exact step of the length `RATE` in each round."""
    training = {"local_steps": 1, "batch_size": "full", "learning_rate": RATE}
    read = scenario(devices, _ROUNDS, seed, ESTIMATORS[rule], WEAK, training=training)
    labels: dict[str, Label] = {"rule": rule, "devices": devices}
    return StudyRun("F", labels, read, 3.0 + devices / 200)


class PropositionMeasures:
    """The measures of part F, by seed."""

    def __init__(self, results: Results) -> None:
        self._results = results.where(part="F")

    def off(self, rule: str) -> BySeed:
        """The error of the mean step along the direction of selection, per unit of the rate."""
        return self._results.by_seed(
            lambda result: float((mean_step(result) - mean_update(result)) @ PULLED),
            rule=rule,
            devices=DEVICES,
        )

    def remainder(self, devices: int) -> dict[int, float]:
        """The length of the difference that estimation makes to the mean step, by seed, as a share
        of the length of the population's mean update."""
        found = {}
        for result in self._results.where(rule=ESTIMATED, devices=devices):
            true = self._results.one(rule=TRUE, devices=devices, seed=result.seed)
            found[result.seed] = (
                _remainder(result, true) if result.ended and true.ended else math.nan
            )
        return found

    def scatter(self, devices: int, rounds: int) -> BySeed:
        """How much ln ρ scatters over the updates of the last third of the first `rounds`."""
        return self._results.by_seed(
            lambda result: error_of(result, range(rounds - rounds // 3 + 1, rounds + 1)).scatter,
            rule=ESTIMATED,
            devices=devices,
        )

    def table(self) -> pd.DataFrame:
        """The errors of the estimators: means over the seeds, and their standard deviations."""
        rows = []
        for rule in (NAIVE, HAJEK, TRUE):
            off = list(self.off(rule).values())
            rows.append({"rule": rule, "mean error": np.mean(off), "its sd": np.std(off)})
        return pd.DataFrame(rows)

    def sweep(self) -> pd.DataFrame:
        """How much ln ρ scatters by N and by rounds, and the remainder."""
        rows = []
        for devices in SIZES:
            found = {n: np.mean(list(self.scatter(devices, n).values())) for n in LENGTHS}
            rest = np.mean(list(self.remainder(devices).values()))
            scatters = {f"after {n} rounds": x for n, x in found.items()}
            rows.append({"devices": devices} | scatters | {"remainder": rest})
        return pd.DataFrame(rows)


def mean_step(result: Result) -> FloatArray:
    """The mean step of a run, per unit of the rate. The initial model is 0, so the last model is
    the sum of the steps."""
    return result.vector.astype(np.float64) / (_ROUNDS * RATE)


def mean_update(result: Result) -> FloatArray:
    """The mean update of the whole population, −∇F at the initial model."""
    target = PopulationLoss(result.scenario)
    return -target.gradient(np.zeros(len(PULLED)))


def _remainder(estimated: Result, true: Result) -> float:
    off = np.linalg.norm(mean_step(estimated) - mean_step(true))
    return float(off / np.linalg.norm(mean_update(true)))


def proposition_claims(found: PropositionMeasures) -> Iterator[Claim]:
    scale = float(np.mean(list(found.off(NAIVE).values())))
    yield close(
        "F: Proposition 4.1: with true propensities the mean step of the Horvitz-Thompson form is "
        "that of the population: its error as a share of FedAvg's",
        _shares(found.off(TRUE), scale),
        0.0,
        _UNBIASED,
    ).because("An update that is included with probability p counts 1/p times.")
    yield greater(
        "F: the Hájek form has a bias at this N, in the direction of FedAvg's",
        _shares(found.off(HAJEK), scale),
    ).because("A ratio of two unbiased estimates is not unbiased; its bias is of order 1/N.")
    yield grows(
        "F: Proposition 4.2: the difference that estimated propensities make to the mean step "
        "falls with N",
        {1 / n: found.remainder(n) for n in SIZES},
    ).because("The estimates are consistent, and propensities are bounded away from 0.")
    yield from _consistency(found)


def _consistency(found: PropositionMeasures) -> Iterator[Claim]:
    last, few, many = max(LENGTHS), min(SIZES), max(SIZES)
    scatter = {n: found.scatter(n, last) for n in SIZES}
    yield greater(
        f"F: with N = {few}, ln ρ of FedIPW scatters more than twice as much as with N = {many}",
        scatter[few],
        {seed: 2 * value for seed, value in scatter[many].items()},
    ).because("Errors of estimation fall as 1/√N, which would be four times as much.")


def _shares(errors: BySeed, scale: float) -> dict[int, float]:
    return {seed: error / scale for seed, error in errors.items()}
