"""The table of a league: what every rule came to in every scenario."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from muster.emulator.comparison.comparing import conclude
from muster.emulator.comparison.comparison import Comparison
from muster.emulator.comparison.run_set import ENDED
from muster.emulator.records.intervals import Interval, interval
from muster.emulator.records.summary import read_summary
from muster.laboratory.league.plan import BASELINE, LeaguePlan

_MODEL = 16
"""Digits of a SHA-256 that are kept: enough to compare."""


@dataclass(frozen=True)
class Standing:
    """What a rule came to in a scenario, over all seeds.

    Attributes:
        runs: number of planned runs; 0 if the rule is refused.
        accuracy: at the end.
        difference: of the accuracy to that of the baseline, between runs of the same seed.
        rounds: until the target, of the runs that reached it.
        hours: of scenario time.
        bytes_up: of all updates that devices sent.
        worst: the accuracy of the group for which it is least, on the examples of its devices.
        models: the SHA-256 over the models of all seeds, in their order; empty without models.
        why: why the rule is refused, or why a run failed; empty: neither.
        folder: the run folder of the first seed, relative to the league's; empty if refused.
    """

    scenario: str
    rule: str
    runs: int
    accuracy: Interval
    difference: Interval
    rounds: Interval
    hours: Interval
    bytes_up: Interval
    worst: Interval
    models: str
    why: str
    folder: str


@dataclass(frozen=True)
class League:
    """A league that was played.

    Attributes:
        status: completed; failed (some runs failed); or stopped (it can be resumed).
        comparisons: that of every scenario.
        standings: one for every scenario and rule, in the order of the plan.
        cells: a row for every planned run: scenario, rule, seed, status, accuracy, model.
        fingerprint: what decides the bits of training on the machine that played it.
    """

    folder: Path
    plan: LeaguePlan
    status: str
    comparisons: Mapping[str, Comparison]
    standings: list[Standing]
    cells: pd.DataFrame
    fingerprint: Any


def standings_of(folder: Path, plan: LeaguePlan, problems: Mapping[str, str]) -> League:
    """Read the results from the run folders, and write the tables of every scenario.

    Args:
        problems: title of a cell to the reason why it has no result.
    """
    reasons = {c.folder: problems[c.title] for c in plan.cells if c.title in problems}
    comparisons: dict[str, Comparison] = {}
    standings: list[Standing] = []
    cells, fingerprint = [], None
    for name, planned in plan.scenarios.items():
        failures = {
            r.folder: why for r in planned.runs if (why := reasons.get(f"{name}/{r.folder}"))
        }
        (folder / name).mkdir(exist_ok=True)
        found = comparisons[name] = conclude(folder / name, planned, failures, "png")
        runs = _measured(found, plan.target)
        standings += _standings(plan, name, runs)
        cells.append(
            pd.DataFrame(
                {
                    "scenario": name,
                    "rule": runs["variant"],
                    "seed": runs["seed"],
                    "status": runs["status"],
                    "accuracy": runs["accuracy"],
                    "model": runs["model_sha256"].str[:_MODEL],
                }
            )
        )
        for run in planned.runs if fingerprint is None else ():
            fingerprint = fingerprint or read_summary(folder / name / run.folder).get("fingerprint")
    states = {found.status for found in comparisons.values()}
    status = next((state for state in ("stopped", "failed") if state in states), "completed")
    every = pd.concat(cells, ignore_index=True)
    return League(folder, plan, status, comparisons, standings, every, fingerprint)


def _measured(found: Comparison, target: float) -> pd.DataFrame:
    """The runs of a scenario, with what a comparison does not measure."""
    runs = found.runs
    reached = found.courses[found.courses["accuracy"] >= target]
    first = reached.groupby(["variant", "seed"])["round"].min()
    keys = pd.MultiIndex.from_frame(runs[["variant", "seed"]])
    worst = [_worst_group(found.folder / name) for name in runs["folder"]]
    measured = runs.assign(rounds_needed=first.reindex(keys).to_numpy(float), worst_group=worst)
    counted = runs["status"].isin(ENDED)
    numbers = ["accuracy", "scenario_s", "bytes_up", "rounds_needed", "worst_group"]
    measured[numbers] = measured[numbers].astype("float64").where(counted)
    return measured


def _worst_group(run: Path) -> float:
    groups = (read_summary(run).get("final") or {}).get("groups", {})
    found = [part["accuracy"] for part in groups.values() if "accuracy" in part]
    return float(min(found, default=float("nan")))


def _standings(plan: LeaguePlan, name: str, runs: pd.DataFrame) -> Iterator[Standing]:
    baseline = runs[runs["variant"] == BASELINE].set_index("seed")["accuracy"]
    for rule in plan.rules:
        own = runs[runs["variant"] == rule].set_index("seed")
        models = own["model_sha256"].dropna()
        details = own["detail"][~own["status"].isin([*ENDED, "not run"])].dropna()
        yield Standing(
            name,
            rule,
            len(own),
            interval(own["accuracy"]),
            interval(own["accuracy"] - baseline.reindex(own.index)),
            interval(own["rounds_needed"]),
            interval(own["scenario_s"] / 3600),
            interval(own["bytes_up"]),
            interval(own["worst_group"]),
            hashlib.sha256("".join(models).encode()).hexdigest()[:_MODEL] if len(models) else "",
            plan.refused.get((name, rule), str(details.iloc[0]) if len(details) else ""),
            f"{name}/{own['folder'].iloc[0]}" if len(own) else "",
        )
