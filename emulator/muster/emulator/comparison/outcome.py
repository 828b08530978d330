"""The results of a comparison, read from its run folders as data frames.

A run counts in means and differences if it ended by itself: completed or diverged.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from muster.common.errors import LedgerError
from muster.emulator.comparison.plan import ComparisonPlan, ComparisonRun
from muster.emulator.comparison.run_set import ENDED
from muster.emulator.comparison.variants import value_text
from muster.emulator.records.account import Account
from muster.emulator.records.intervals import Interval, interval
from muster.emulator.records.scenario_time import round_durations
from muster.emulator.records.summary import other_metrics, read_summary

NOT_RUN = "not run"

MEASURES = (
    "accuracy",
    "loss",
    "participation_rate",
    "bytes",
    "scenario_s",
    "rounds_to_target",
    "scenario_s_to_target",
    "bytes_to_target",
)
"""Columns of `runs` that are averaged and compared if any run has them. Wall seconds are not among
them, because in lockstep they say how busy this machine was."""


ENERGY = "energy_j", "wasted_j", "co2e_g"
"""Columns of runs whose scenario has `[energy]`; they are averaged and compared too."""

METRIC = "metric_"
"""The columns of other metrics of the task begin with this, and are averaged and compared too."""


def read_runs(folder: Path, plan: ComparisonPlan, failures: Mapping[str, str]) -> pd.DataFrame:
    """One row for every planned run, in order.

    Args:
        folder: the folder of the comparison.
        failures: folder of a run to the reason why it failed in this session.
    """
    rows = [_row(folder, planned, failures.get(planned.folder)) for planned in plan.runs]
    frame = pd.DataFrame(rows)
    return frame.astype(dict.fromkeys(_measures_of(frame), "float64"))


def _measures_of(runs: pd.DataFrame) -> list[str]:
    more = [n for n in map(str, runs) if n in ENERGY or n.startswith(METRIC)]
    return [*MEASURES, *more]


def read_courses(folder: Path, plan: ComparisonPlan) -> pd.DataFrame:
    """Every evaluation of every run: variant, seed, round, loss, accuracy, and the bytes and the
    scenario seconds until then."""
    courses = [_course(folder / planned.folder, planned) for planned in plan.runs]
    numbers = dict.fromkeys(["loss", "accuracy", "bytes", "scenario_s"], "float64")
    return pd.concat(courses, ignore_index=True).astype({"round": "int64", **numbers})


def targets_of(plan: ComparisonPlan) -> dict[str, list[float]]:
    """The different targets of the variants by measure, without those that none has."""
    found: dict[str, list[float]] = {}
    for run in plan.runs:
        target = run.scenario.server.target
        for measure, value in (target.least | target.most).items():
            if value not in found.setdefault(measure, []):
                found[measure].append(value)
    return found


def means_of(runs: pd.DataFrame) -> pd.DataFrame:
    """For every variant and measure: n, mean, and the interval from `low` to `high`."""
    counted = runs[runs["status"].isin(ENDED)]
    return pd.DataFrame(
        [
            _estimate(variant, measure, interval(counted[counted["variant"] == variant][measure]))
            for variant in runs["variant"].unique()
            for measure in measured(runs)
        ],
        columns=_ESTIMATE,
    )


def differences_of(runs: pd.DataFrame) -> pd.DataFrame:
    """As `means_of`, for each variant minus the first, between runs of the same seed."""
    counted = runs[runs["status"].isin(ENDED)].set_index(["variant", "seed"])
    first, *others = runs["variant"].unique()
    rows = []
    for variant in others:
        for measure in measured(runs):
            by_seed = counted[measure].unstack("variant").reindex(columns=[first, variant])
            rows.append(_estimate(variant, measure, interval(by_seed[variant] - by_seed[first])))
    return pd.DataFrame(rows, columns=_ESTIMATE)


def measured(runs: pd.DataFrame) -> list[str]:
    """The measures that at least one run has, and those of the target if there is one."""
    targeted = runs["target_reached"].notna().any()
    return [
        measure
        for measure in _measures_of(runs)
        if runs[measure].notna().any() or (targeted and measure.endswith("_to_target"))
    ]


_COURSE = ["variant", "seed", "round", "loss", "accuracy", "bytes", "scenario_s"]

_ESTIMATE = ["variant", "measure", "n", "mean", "low", "high"]


def _estimate(
    variant: str, measure: str, found: Interval
) -> tuple[str, str, int, float, float, float]:
    low, high = found.mean - found.half, found.mean + found.half
    return variant, measure, found.n, found.mean, low, high


def _row(folder: Path, planned: ComparisonRun, failure: str | None) -> dict[str, Any]:
    run = folder / planned.folder
    summary = read_summary(run)
    status = summary.get("status") or ("unfinished" if run.exists() else NOT_RUN)
    final, target = summary.get("final") or {}, summary.get("target") or {}
    up, down = summary.get("bytes_up"), summary.get("bytes_down")
    settings = {
        key: value_text(value) if isinstance(value, Mapping | list) else value
        for key, value in planned.settings.items()
    }
    return {
        "variant": planned.variant,
        "seed": planned.seed,
        **settings,
        "folder": planned.folder,
        "status": "failed" if failure and status not in ENDED else status,
        "detail": failure or summary.get("detail"),
        "rounds": summary.get("rounds", 0),
        "accuracy": final.get("accuracy"),
        "loss": final.get("loss"),
        "participation_rate": summary.get("participation_rate"),
        "bytes": None if up is None or down is None else up + down,
        "bytes_up": up,
        "bytes_down": down,
        "scenario_s": summary.get("scenario_s"),
        "seconds": summary.get("seconds"),
        "target_reached": target.get("reached"),
        "rounds_to_target": target.get("rounds"),
        "scenario_s_to_target": target.get("scenario_s"),
        "bytes_to_target": target.get("bytes"),
        "model_sha256": summary.get("model_sha256"),
        **_energy(summary.get("energy")),
        **{f"{METRIC}{name}": value for name, value in other_metrics(final).items()},
    }


def _energy(totals: Mapping[str, Any] | None) -> dict[str, float]:
    if totals is None:
        return {}
    found = zip(ENERGY, (totals["joules"], totals["wasted"], totals.get("co2e_g")), strict=True)
    return {name: value for name, value in found if value is not None}


def _course(run: Path, planned: ComparisonRun) -> pd.DataFrame:
    try:
        with Account(run) as account:
            sent = account.round_totals.set_index("round")[["bytes_up", "bytes_down"]]
            measured = account.evaluations[["round", "loss", "accuracy"]]
            spent = round_durations(account).cumsum(skipna=False).rename("scenario_s")
    except LedgerError:  # the run never got as far as a ledger
        return pd.DataFrame(columns=_COURSE)
    carried = sent.sum(axis="columns").cumsum().rename("bytes").astype("float64")
    course = measured.join(carried, on="round").join(spent, on="round")
    begins = course["round"] == 0
    course.loc[begins, ["bytes", "scenario_s"]] = 0.0
    course.insert(0, "variant", planned.variant)
    course.insert(1, "seed", planned.seed)
    return course
