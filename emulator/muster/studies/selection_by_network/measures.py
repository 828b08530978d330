"""Measures of the study `selection-by-network`: functions of one run, and tables of all runs."""

import math
from collections.abc import Iterator

import pandas as pd

from muster.studies.claims import BySeed
from muster.studies.results import Result, Results
from muster.studies.selection_by_network.fleet import FEDIPW, TOWN, TOWN_GAP, VALLEY

FREE, DEADLINE, CHANGED = "no deadline", "deadline", "changed"
"""The parts of the study."""

_SETTLED = 0.5
"""Share of the rounds after which weights count. By then propensities are learned, and updates of
earlier rounds hardly matter for the model in the last rounds, over which gaps are averaged."""
TAIL = 0.3
"""Share of the rounds, the last ones, over which gaps are averaged."""

_KEY = ["part", "rule", "change"]


class SelectionByNetworkMeasures:
    """The measures of all runs.

    Attributes:
        runs: a row for each run, with `part`, `rule`, `change` (empty for none), `seed`, and a
            column for each of `measures`, NaN if the run did not end by itself.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        rows = pd.DataFrame([_row(result) for result in results])
        self.runs = rows.reindex(columns=[*_KEY, "seed", *_SHOWN, *_JUDGED])

    def of(self, measure: str, part: str, rule: str = FEDIPW, change: str = "") -> BySeed:
        """A column of `runs`, by seed."""
        runs = self.runs
        alike = (runs["part"] == part) & (runs["rule"] == rule) & (runs["change"] == change)
        rows = runs[alike]
        return dict(zip(rows["seed"].tolist(), rows[measure].tolist(), strict=True))

    def by_rule(self, measure: str, part: str) -> dict[str, BySeed]:
        rows = self.runs[self.runs["part"] == part]
        return {rule: self.of(measure, part, rule) for rule in rows["rule"].unique()}

    def by_change(self, measure: str) -> dict[str, BySeed]:
        rows = self.runs[self.runs["part"] == CHANGED]
        return {
            change: self.of(measure, CHANGED, change=change) for change in rows["change"].unique()
        }

    def weights_and_gaps(self, part: str, *changes: str) -> list[tuple[float, float]]:
        """The valley's weight and the gap of every run of FedIPW that ended, in some settings."""
        runs = self.runs
        there = (runs["part"] == part) & (runs["rule"] == FEDIPW)
        rows = runs[there & runs["change"].isin(changes)][["valley's weight", "gap"]].dropna()
        return list(rows.itertuples(index=False, name=None))

    def most(self, measure: str, part: str) -> BySeed:
        """The largest value over the runs of a part, by seed; NaN if a value is missing."""
        rows = self.runs[self.runs["part"] == part]
        most = rows.groupby("seed")[measure].agg(lambda values: values.max(skipna=False))
        return dict(zip(most.index.tolist(), most.tolist(), strict=True))

    def other_ends(self) -> BySeed:
        """The number of updates, over all rules with the deadline, whose outcome differs from that
        with FedAvg, by seed."""
        found = {}
        for seed in self.runs["seed"].unique().tolist():
            runs = self._results.where(part=DEADLINE, seed=seed)
            found[seed] = _differing(runs) if all(run.ended for run in runs) else math.nan
            runs.close()
        return found

    def ends(self) -> pd.DataFrame:
        """Updates per round with the deadline: `folded` and `late`, by group."""
        frames = [_ends_by_group(run) for run in self._under_deadline()]
        return pd.concat(frames).groupby(level=0, observed=True).mean() if frames else _NO_ENDS

    def crowds(self) -> pd.DataFrame:
        """The table `crowd` of all seeds."""
        frames = [crowd(run) for run in self._under_deadline()]
        return pd.concat(frames, ignore_index=True) if frames else _NO_CROWD

    def _under_deadline(self) -> Iterator[Result]:
        """One run of each seed, because lateness does not depend on the rule."""
        for result in self._results.where(part=DEADLINE, rule=FEDIPW):
            if result.ended:
                yield result
            result.close()

    def table(self) -> pd.DataFrame:
        """Means over the seeds, and the standard deviation of the gap."""
        rows = self.runs.groupby(_KEY, sort=False)
        means = rows[_SHOWN].mean()
        means.insert(1, "sd of gap", rows["gap"].std())
        return means.reset_index()


_SHOWN = ["gap", "valley's weight", "valley's share of folded", "late of the valley",
          "folded a round", "effective size", "bytes up a round"]  # fmt: skip
_JUDGED = ["valley's share of accepted", "late", "unexplained", "crowding"]
_NO_ENDS = pd.DataFrame(0.0, index=[TOWN, VALLEY], columns=["folded", "late"])
_NO_CROWD = pd.DataFrame({"came": [], "late": []})


def _row(result: Result) -> dict[str, object]:
    found = measures(result) if result.ended else {}
    result.close()
    return {"part": result.part, "change": "", **result.labels, "seed": result.seed, **found}


def measures(result: Result) -> dict[str, float]:
    """The measures by which a run is judged.

    `unexplained` counts devices that accepted and whose updates were neither folded nor too late
    for the deadline. `crowding` is the late share of the valley in rounds with many of its devices
    minus that in rounds with few.
    """
    account, summary = result.account, result.summary
    sent, rounds = _sent(result), account.rounds
    valley = sent["group"] == VALLEY
    folded, late = sent["outcome"] == "folded", sent["outcome"] == "late"
    by_deadline = late & (sent["reason"] == "deadline")
    crowds = crowd(result)
    many = crowds["came"] > crowds["came"].median()
    return {
        "gap": _gap(result),
        "valley's weight": _weight_of_valley(result),
        "valley's share of accepted": float(valley.mean()),
        "valley's share of folded": float(valley[folded].mean()),
        "late of the valley": float(late[valley].mean()),
        "late": float(by_deadline.sum()),
        "unexplained": float((rounds["accepted"] - rounds["folded"]).sum() - by_deadline.sum()),
        "crowding": float(crowds["late"][many].mean() - crowds["late"][~many].mean()),
        "folded a round": float(summary["updates_folded"] / summary["rounds"]),
        "effective size": float(rounds["effective_size"].mean()),
        "bytes up a round": float(summary["bytes_up"] / summary["rounds"]),
    }


def _gap(result: Result) -> float:
    """The loss over all devices above the least loss, as a mean of the last rounds and as a share
    of `TOWN_GAP`."""
    # Every f_i is ½‖θ − θ_i‖², so their mean exceeds its least by half the squared distance.
    course = result.course("distance") ** 2 / 2 / TOWN_GAP
    return float(course[course.index > (1 - TAIL) * result.scenario.server.rounds].mean())


def _weight_of_valley(result: Result) -> float:
    """The valley's share of the weight of rounds, as a mean of the second half."""
    sent = _sent(result)
    late_enough = sent["round"] > _SETTLED * result.scenario.server.rounds
    sent = sent[(sent["outcome"] == "folded") & late_enough]
    normaliser = result.account.rounds.set_index("round")["normaliser"]
    weights = sent["weight"] / sent["round"].map(normaliser)
    return float(weights[sent["group"] == VALLEY].sum() / weights.sum())


def crowd(result: Result) -> pd.DataFrame:
    """For every round with devices of the valley: how many `came`, and the share of them that was
    `late`."""
    sent = _sent(result)
    valley = sent[sent["group"] == VALLEY]
    late = (valley["outcome"] == "late").groupby(valley["round"])
    return pd.DataFrame({"came": late.size(), "late": late.mean()})


def _ends_by_group(result: Result) -> pd.DataFrame:
    sent = _sent(result)
    counts = pd.crosstab(sent["group"], sent["outcome"]) / result.scenario.server.rounds
    return counts.reindex_like(_NO_ENDS).fillna(0.0)


def _sent(result: Result) -> pd.DataFrame:
    """The contributions with the `group` of each."""
    groups = result.account.clients.set_index("client")["group"]
    sent = result.account.contributions
    return sent.assign(group=sent["client"].map(groups))


def _differing(runs: Results) -> float:
    plain = _ends(runs.one(rule="fedavg"))
    return float(sum(len(plain ^ _ends(run)) for run in runs))


def _ends(result: Result) -> set[tuple[int, str, str]]:
    sent = result.account.contributions
    return set(zip(sent["round"], sent["client"], sent["outcome"], strict=True))
