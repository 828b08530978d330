"""Measures of the study `staleness`: functions of one run, and tables of all runs.

The pull of the slow devices says where a model stands between the optima of the two groups: 0 is
the optimum of the fast devices, 1 that of the slow ones, and `SHARE` that of all. The loss of the
slow devices minus that of the fast ones is a linear function of it, so its mean over many versions
is that of the mean model, without the noise of single versions.
"""

import math
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from muster.emulator.fleet.lives import task_of
from muster.emulator.records.scenario_time import round_ends
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.studies.claims import BySeed
from muster.studies.results import Result, Results
from muster.studies.staleness.fleet import (
    BUFFERED,
    FAST,
    OVER_SELECTED,
    SLOW,
    SLOW_DEVICES,
    SYNCHRONOUS,
    fast_gap,
)
from muster.tasks.opening import open_task
from muster.tasks.synthetic import OpenSynthetic

ALIKE, APART_PART, CHANGED, WORLDS, PICTURES, STALE, LINKED = (
    "alike", "apart", "changed", "worlds", "pictures", "stale", "linked",
)  # fmt: skip
"""The parts of the study."""

TAIL = 0.4
"""Share of the rounds, the last ones, over which weights, pulls and losses are averaged."""
TARGET = 0.1
"""The gap whose time is measured in `alike`, as a share of `fast_gap()`."""
EARLY_S = 30.0
"""A moment of scenario time at which a synchronous run has made only a few versions."""
ACCURACY = 0.8
"""The accuracy whose time is measured in `pictures`."""

_DRAWN = (ALIKE, APART_PART, PICTURES)
_KEY = ["part", "method", "change"]
_SHOWN = [
    "gap", "pull", "weight", "slow excess", "seconds to target", "bytes to target", "wasted",
    "slow loss",
]  # fmt: skip
_JUDGED = ["early gap", "seconds to accuracy", "accuracy"]


class Optima(NamedTuple):
    """The optima of the two groups, from the data of the devices.

    Attributes:
        fast, slow: means of θ_i over the devices of a group, shape (parameters,).
        spread: Σ‖θ_i‖² / (2n) of the slow devices minus that of the fast ones.
        slow_spread: the mean of ½‖θ_i − slow‖² over the slow devices.
        best: the mean of θ_i over all devices.
    """

    fast: np.ndarray
    slow: np.ndarray
    spread: float
    slow_spread: float
    best: np.ndarray

    def pull(self, difference: float) -> float:
        """Where a model stands whose loss on slow devices minus that on fast ones is given."""
        apart = self.slow - self.fast
        return float((self.spread - difference - self.fast @ apart) / (apart @ apart))

    def slow_loss_of_best(self) -> float:
        """The loss of the slow devices at the optimum of all."""
        off = self.best - self.slow
        return float(off @ off / 2 + self.slow_spread)


def optima_of(scenario: Scenario) -> Optima:
    task = task_of(scenario, population(scenario))
    return _optima(task.to_json(), scenario.devices, scenario.seed)


@cache
def _optima(task: str, devices: int, seed: int) -> Optima:
    """Runs of one seed and part differ only in how they train, and have the same optima."""
    opened = open_task(task, devices, seed)
    assert isinstance(opened, OpenSynthetic)
    designs = [opened.design(device) for device in range(devices)]
    theta = np.array([np.linalg.lstsq(x, y)[0] for x, y in designs])
    fast, slow = theta[:-SLOW_DEVICES], theta[-SLOW_DEVICES:]
    halves = [float((group**2).sum(axis=1).mean() / 2) for group in (fast, slow)]
    return Optima(
        fast.mean(axis=0),
        slow.mean(axis=0),
        halves[1] - halves[0],
        float(((slow - slow.mean(axis=0)) ** 2).sum(axis=1).mean() / 2),
        theta.mean(axis=0),
    )


class StalenessMeasures:
    """The measures of all runs.

    Attributes:
        runs: a row for each run, with `part`, `method`, `change` (empty for none), `seed`, and a
            column for each measure, NaN if the run did not end by itself.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        rows = pd.DataFrame([_row(result) for result in results])
        self.runs = rows.reindex(columns=[*_KEY, "seed", *_SHOWN, *_JUDGED])

    def of(self, measure: str, part: str, method: str, change: str = "") -> BySeed:
        """A column of `runs`, by seed."""
        runs = self.runs
        alike = (runs["part"] == part) & (runs["method"] == method) & (runs["change"] == change)
        rows = runs[alike]
        return dict(zip(rows["seed"].tolist(), rows[measure].tolist(), strict=True))

    def by_method(self, measure: str, part: str) -> dict[str, BySeed]:
        methods = self.runs.loc[self.runs["part"] == part, "method"].unique()
        return {method: self.of(measure, part, method) for method in methods}

    @cached_property
    def courses(self) -> pd.DataFrame:
        """Gaps, or accuracies in `pictures`, over scenario time: `part`, `method`, `seed`,
        `seconds` and `value`, of runs without a change."""
        frames = []
        for result in self._results:
            if result.ended and "change" not in result.labels and result.part in _DRAWN:
                course = course_of(result)
                labels = {"part": result.part, **result.labels, "seed": result.seed}
                frames.append(pd.DataFrame({**labels, "seconds": course.index, "value": course}))
            result.close()
        columns = ["part", "method", "seed", "seconds", "value"]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)

    def crossings(self, change: str) -> BySeed:
        """The scenario second at which synchronous training is first nearer to the optimum than the
        buffered mode ends, by seed; NaN if it never is."""
        part = CHANGED if change else APART_PART
        ends = self.of("gap", part, BUFFERED, change)
        found: dict[int, float] = {}
        for seed, gap in ends.items():
            labels = {"method": SYNCHRONOUS, **({"change": change} if change else {})}
            result = self._results.one(part=part, seed=seed, **labels)
            found[seed] = _first(course_of(result) < gap) if result.ended else math.nan
            result.close()
        return found

    def table(self) -> pd.DataFrame:
        """Means over the seeds, and the lowest and the highest gap of a seed."""
        groups = self.runs.groupby(_KEY, sort=False)
        means = groups[_SHOWN].mean()
        means.insert(1, "lowest gap", groups["gap"].min())
        means.insert(2, "highest gap", groups["gap"].max())
        return means.reset_index()


def _row(result: Result) -> dict[str, object]:
    found = measures(result) if result.ended else {}
    result.close()
    return {"part": result.part, "change": "", **result.labels, "seed": result.seed, **found}


def measures(result: Result) -> dict[str, float]:
    """The measures by which a run is judged; times are of the scenario, bytes of updates up."""
    course = course_of(result)
    common = {"weight": weight_of_slow(result), "wasted": _wasted(result)}
    if result.part == LINKED:
        return {**common, "slow loss": float(_losses(result)[SLOW].mean())}
    if result.part == PICTURES:
        first = _first(course >= ACCURACY)
        return {**common, "seconds to accuracy": first, "accuracy": float(course.iloc[-1])}
    early = course[course.index <= EARLY_S]
    tail = course.iloc[int((1 - TAIL) * len(course)) :]
    found = {
        **common,
        "gap": float(tail.mean()),
        "early gap": float(early.iloc[-1]),
        "seconds to target": _first(course <= TARGET),
        "bytes to target": _bytes_until(result, course <= TARGET),
    }
    if result.part in (ALIKE, STALE):
        return found
    optima, losses = optima_of(result.scenario), _losses(result)
    pull = optima.pull(float((losses[SLOW] - losses[FAST]).mean()))
    excess = float(losses[SLOW].mean()) - optima.slow_loss_of_best()
    return {**found, "pull": pull, "slow excess": excess}


def course_of(result: Result) -> "pd.Series[float]":
    """The gap as a share of `fast_gap()`, or the accuracy in `pictures`, of every evaluated
    version, indexed by the scenario second at which it was made."""
    if result.part in (PICTURES, LINKED):
        course = result.course("accuracy")
    else:
        # Every f_i is ½‖θ − θ_i‖², so their mean exceeds its least by half the squared distance.
        course = result.course("distance") ** 2 / 2 / fast_gap()
    ends = _ends(result).reindex(course.index)
    ends[ends.index == 0] = 0.0
    return pd.Series(course.to_numpy(), pd.Index(ends.ffill(), name="seconds"))


def _ends(result: Result) -> "pd.Series[float]":
    """The scenario second at which each round ends.

    In lockstep a synchronous round takes `clock.round_s`, whatever the devices do. Here it takes as
    long as the slowest update that it folded, as if the next round opened at once. That is the best
    case for the synchronous methods.
    """
    if result.labels["method"] not in (SYNCHRONOUS, OVER_SELECTED):
        return round_ends(result.account)
    took = result.account.work.set_index(["round", "client"])["modelled_s"]
    folded = _folded(result)
    keys = pd.MultiIndex.from_frame(folded[["call_round", "client"]])
    slowest = pd.Series(took.reindex(keys).to_numpy()).groupby(folded["round"].to_numpy()).max()
    rounds = result.account.rounds["round"]
    return slowest.reindex(rounds, fill_value=0.0).cumsum()


def weight_of_slow(result: Result) -> float:
    """The slow devices' share of the weight of updates, in the last rounds."""
    folded = _folded(result)
    last = folded["round"] > (1 - TAIL) * result.account.rounds["round"].max()
    folded = folded[last]
    normaliser = result.account.rounds.set_index("round")["normaliser"]
    weights = folded["weight"] / folded["round"].map(normaliser)
    groups = result.account.clients.set_index("client")["group"]
    return float(weights[folded["client"].map(groups) == SLOW].sum() / weights.sum())


def _wasted(result: Result) -> float:
    """The share of the bytes up of updates that did not count."""
    totals = result.account.round_totals
    return float(totals["bytes_wasted"].sum() / totals["bytes_up"].sum())


def _first(reached: "pd.Series[bool]") -> float:
    """The scenario second of the first evaluation that reached something; NaN if none did."""
    seconds = reached.index.to_numpy(np.float64)[reached.to_numpy()]
    return float(seconds[0]) if len(seconds) else math.nan


def _bytes_until(result: Result, reached: "pd.Series[bool]") -> float:
    """Bytes up until the first evaluation that reached something; NaN if none did."""
    if not reached.any():
        return math.nan
    round = result.course("loss").index[int(reached.to_numpy().argmax())]
    rounds = result.account.rounds
    return float(rounds.loc[rounds["round"] <= round, "bytes_up"].sum())


def _losses(result: Result) -> pd.DataFrame:
    """The losses of the two groups in the last rounds, a column for each."""
    table = result.account.group_evaluations
    losses = table.pivot(index="round", columns="group", values="loss").astype(float)
    return pd.DataFrame(losses[losses.index > (1 - TAIL) * losses.index.max()])


def _folded(result: Result) -> pd.DataFrame:
    sent = result.account.contributions
    return sent[sent["outcome"] == "folded"]
