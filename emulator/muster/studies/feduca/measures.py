"""Measures of the study `feduca`: functions of one run, and tables of all runs."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.studies.claims import BySeed
from muster.studies.feduca.fleet import INSTITUTES, forced_rounds
from muster.studies.results import Result, Results

LAST = 0.5
"""Share of the rounds, the last ones, over which participation and utilities are averaged."""
_ACCURACY_LAST = 0.2
"""The same for the accuracy of the model; the paper takes the last ten of a hundred rounds."""

_KEY = ["part", "method", "test", "change"]
GAPS = ["jensen gap", "gap, top half", "gap, top quarter"]
"""The Jensen gap of all institutes in the mean of the rounds, and of the half and the quarter of
the rounds in which it is largest; the paper has the top 50 and 25 of its 100 rounds."""
_MEASURES = ["accuracy", "participation", "eq. 1", *GAPS, "missing utility", "r squared"]
_TOTALS = (
    *(("jensen_gap", name, share) for name, share in zip(GAPS, (1, 0.5, 0.25), strict=True)),
    ("missing_utility", "missing utility", 1),
)
"""The name in the ledger, the measure, and the share of the rounds."""
_CHECKED = [
    "discrepancy excess",
    "discrepancy",
    "bound",
    "weight change",
    "mispredicted",
    "unsatisfied",
    "refused",
]


class UtilityMeasures:
    """The measures of all runs.

    Attributes:
        runs: a row for each run, with `part`, `method`, `test`, `change` (empty for none), `seed`,
            and a column for each measure, NaN if the run did not end by itself or has no such
            thing.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        rows = pd.DataFrame([_row(result) for result in results])
        self.runs = rows.reindex(columns=[*_KEY, "seed", *_MEASURES, *_CHECKED])

    def of(self, measure: str, part: str, method: str, test: str, change: str = "") -> BySeed:
        """A column of `runs`, by seed."""
        runs, wanted = self.runs, (part, method, test, change)
        alike = np.logical_and.reduce(
            [runs[key] == value for key, value in zip(_KEY, wanted, strict=True)]
        )
        rows = runs[alike]
        return dict(zip(rows["seed"].tolist(), rows[measure].astype(float).tolist(), strict=True))

    def worst(self, measure: str) -> BySeed:
        """The largest value of a column over the runs that have it, by seed."""
        known = self.runs.dropna(subset=[measure])
        return {int(str(seed)): float(of[measure].max()) for seed, of in known.groupby("seed")}

    def has(self, part: str, change: str = "") -> bool:
        """Whether a part was run, with a change."""
        runs = self.runs
        return bool(((runs["part"] == part) & (runs["change"] == change)).any())

    @cached_property
    def courses(self) -> pd.DataFrame:
        """Participation and accuracy by round: `part`, `method`, `test`, `change`, `seed`, `round`,
        `participation`, `accuracy`."""
        frames = []
        for result in self._results:
            if result.ended:
                course = pd.DataFrame(
                    {
                        "participation": participation(result.account),
                        "accuracy": accuracies(result),
                    }
                ).rename_axis("round")
                frames.append(course.reset_index().assign(**_labels(result)))
            result.close()
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @cached_property
    def discrepancies(self) -> pd.DataFrame:
        """‖α − 1/N‖² and its bound by round of every run with strategies: `part`, `method`, `test`,
        `change`, `seed`, `round`, `discrepancy`, `bound`."""
        frames = [pd.DataFrame(columns=[*_KEY, "seed", "round", "discrepancy", "bound"])]
        for result in self._results:
            if result.ended and len(found := discrepancies(result.account)):
                frames.append(found.reset_index().assign(**_labels(result)))
            result.close()
        return pd.concat([frame for frame in frames if len(frame)] or frames, ignore_index=True)

    def table(self, parts: Sequence[str], measures: Sequence[str] = _MEASURES[:3]) -> pd.DataFrame:
        """Means over the seeds of some parts; also the standard deviation of the accuracy, and the
        least and the most participation of a seed."""
        rows = self.runs[self.runs["part"].isin(parts)]
        groups = rows.groupby(_KEY, sort=False)
        table = groups[list(measures)].mean()
        if "accuracy" in measures:
            table.insert(1, "± accuracy", groups["accuracy"].std())
        if "participation" in measures:
            table.insert(3, "least", groups["participation"].min())
            table.insert(4, "most", groups["participation"].max())
        return table.reset_index()


def _labels(result: Result) -> dict[str, str | int]:
    named = {key: str(result.labels.get(key, "")) for key in _KEY[1:]}
    return {"part": result.part, **named, "seed": result.seed}


def _row(result: Result) -> dict[str, str | int | float]:
    row: dict[str, str | int | float] = {**_labels(result)}
    if result.ended:
        row |= measures_of(result)
    result.close()
    return row


def measures_of(result: Result) -> dict[str, float]:
    """All measures of a run; those that it does not have are left out."""
    account, rounds = result.account, result.scenario.server.rounds
    first = int((1 - LAST) * rounds) + 1
    found = {
        "accuracy": float(
            accuracies(result).iloc[-max(1, round(_ACCURACY_LAST * rounds)) :].mean()
        ),
        "participation": float(participation(account).loc[first:].mean()),
        "refused": float(_unforced(account, result)),
    }
    valued = account.valuations
    late = valued[valued["round"] >= first]
    found["eq. 1"] = float(late["gains"].astype("float64").mean())
    if late["r_squared"].notna().any():
        found["r squared"] = float(late["r_squared"].mean())
    for name, column, share in _TOTALS:
        totals = _totals(account, name).loc[2:]
        if len(totals):
            found[column] = float(totals.nlargest(max(1, round(share * len(totals)))).mean())
    told = _by_client(account, "alpha")
    found["weight change"] = float(told.diff().abs().max(axis=1).mean())
    if len(apart := discrepancies(account)):
        found["discrepancy excess"] = float((apart["discrepancy"] - apart["bound"]).max())
        found["discrepancy"] = float(apart["discrepancy"].loc[first:].mean())
        found["bound"] = float(apart["bound"].loc[first:].mean())
    predicted = _by_client(account, "predicted")
    if len(predicted):
        kept = predicted.sum(axis=1)
        attainable = _number(account, "attainable").reindex(kept.index)
        found["unsatisfied"] = float((kept - attainable).max())
        if _foresees(result):
            found["mispredicted"] = float(mispredicted(account, predicted))
    return found


def accuracies(result: Result) -> "pd.Series[float]":
    """The accuracy of the offered model after every round, from 1; a round that makes no version
    leaves the model as it was."""
    rounds = pd.RangeIndex(1, result.scenario.server.rounds + 1)
    course = result.course("accuracy")
    return course.reindex(pd.RangeIndex(0, len(rounds) + 1)).ffill().loc[1:]


def participation(account: Account) -> "pd.Series[float]":
    """The share of the institutes that accepted, by round."""
    answers = account.answers
    accepted = (answers["decision"] == "accept").groupby(answers["round"]).sum()
    return accepted / INSTITUTES


def discrepancies(account: Account) -> pd.DataFrame:
    """‖α − 1/N‖² of the solved weights and its bound, by round; empty without several strategies.

    Both are computed from the recorded α and s. The bound is (n_s·‖s‖² − 1)/N. In rounds that fall
    back to the weights for one device, which do not depend on s, it is (n_s − 1)/N (lemma A.11).
    """
    mixture = _by_client(account, "mixture")
    solved = _by_client(account, "solved")
    if not len(solved):
        solved = _by_client(account, "alpha")
    if mixture.shape[1] < 2 or not len(solved):
        return pd.DataFrame(columns=["discrepancy", "bound"])
    strategies, rows = mixture.shape[1], account.estimates
    bound = (strategies * (mixture**2).sum(axis=1) - 1) / INSTITUTES
    fallen_back = rows.loc[rows["name"] == "fallback", "round"]
    bound[bound.index.isin(fallen_back)] = (strategies - 1) / INSTITUTES
    discrepancy = ((solved - 1 / INSTITUTES) ** 2).sum(axis=1)
    found = pd.DataFrame({"discrepancy": discrepancy, "bound": bound})
    return found.dropna()


def mispredicted(account: Account, predicted: pd.DataFrame) -> int:
    """The number of decisions that the server did not foresee in the round before.

    Args:
        predicted: 1 if a device will stay, shape (rounds, devices); the index is the round that
            predicts, the columns are clients.
    """
    answers = account.answers
    accepts = answers.assign(yes=answers["decision"] == "accept").pivot(
        index="round", columns="client", values="yes"
    )
    foreseen = predicted.set_axis(predicted.index + 1).reindex(accepts.index).dropna()
    actual = accepts.loc[foreseen.index, foreseen.columns]
    return int((actual.astype(bool) != foreseen.astype(bool)).to_numpy().sum())


def _foresees(result: Result) -> bool:
    """Whether every decision follows from the weights of the round before."""
    group, rule = result.scenario.groups[0], result.scenario.server.aggregator
    utility = group.participation.utility
    fitted = utility is not None and utility.test == "fitted" and utility.tolerance == 0
    return fitted and getattr(rule, "order", "") == "solve-first"


def _unforced(account: Account, result: Result) -> int:
    """The number of refusals in rounds in which acceptance is forced."""
    answers = account.answers
    early = answers[answers["round"] <= forced_rounds(str(result.labels["method"]))]
    return int((early["decision"] != "accept").sum())


def _by_client(account: Account, name: str) -> pd.DataFrame:
    """An estimate that is a table, shape (rounds, keys)."""
    rows = account.estimates
    return rows[rows["name"] == name].pivot(index="round", columns="key", values="value")


def _number(account: Account, name: str) -> "pd.Series[float]":
    rows = account.estimates
    return rows[rows["name"] == name].set_index("round")["value"]


def _totals(account: Account, name: str) -> "pd.Series[float]":
    """The sum of an estimate over all institutes, by round."""
    rows = account.estimates
    return rows[rows["name"] == name].groupby("round")["value"].sum()
