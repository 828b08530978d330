"""Runs the plan of a comparison, one run after another, and writes the results.

The folder of a comparison has `plan.json` from the start, a run folder for every run, and
`comparison.*` at the end. To resume means: keep the runs that have ended, resume those that have
begun, and run the rest.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.common.errors import MusterError
from muster.emulator.comparison.comparison import Comparison
from muster.emulator.comparison.plan import ComparisonPlan, make_plan
from muster.emulator.comparison.run_set import (
    ENDED,
    PLAN,
    Play,
    Watch,
    asked_to_stop,
    has_ended,
    make_folder,
    owned,
    plan_text,
    run_or_resume,
    unwatched,
)
from muster.emulator.launch import doctor
from muster.emulator.runs.supervisor import Show
from muster.emulator.scenario.scenario import Scenario


def compare(
    scenario: Path | str,
    *,
    vary: Mapping[str, Sequence[Any]],
    seeds: int = 1,
    settings: Sequence[str] = (),
    data: str | None = None,
    out: Path | str | None = None,
    figures: str = "png",
    track: Sequence[str] = (),
    watch: Watch = unwatched,
) -> Comparison:
    """Run a scenario once for every value of `vary` and every seed, and compare the runs.

    If a run fails, the others still run.

    Args:
        scenario: path of the scenario's TOML file.
        vary: dotted key to its values; with several keys, every combination is a variant.
        seeds: number of seeds: the scenario's seed, that plus 1, …; the same for each variant.
        settings: `key=value` as for `--set`, for all variants.
        data: the data directory.
        out: the folder to make; default `runs/<name>-compare-<time>`.
        figures: "svg" or "pdf" for the figure of this kind, too.
        track: trackers that record every run while it goes on.
        watch: shows the runs.

    Raises:
        ConfigError: a variant or the request is wrong; nothing was started.
    """
    play = _tracked(track)
    plan = make_plan(Path(scenario), vary, seeds, settings, data)
    folder = make_folder(
        f"{plan.name}-compare", None if out is None else Path(out), "muster compare", plan.to_json()
    )
    return run_plan(folder.resolve(), plan, figures, watch, play)


def resume_comparison(
    folder: Path | str,
    *,
    figures: str = "png",
    track: Sequence[str] = (),
    watch: Watch = unwatched,
) -> Comparison:
    """Resume a comparison: runs that have ended are not run again.

    Raises:
        ConfigError: `folder` has no comparison, or another process is running it.
    """
    play = _tracked(track)
    folder = Path(folder)
    plan = _read_plan(folder)
    for planned in plan.runs:
        if not has_ended(folder / planned.folder):
            doctor.require(planned.scenario)
    return run_plan(folder.resolve(), plan, figures, watch, play)


def _tracked(names: Sequence[str]) -> Play:
    """What plays the runs of a comparison, with trackers beside each.

    Raises:
        ConfigError: as `require_trackers`.
    """
    if not names:
        return run_or_resume
    # Only now, because it imports pandas.
    from muster.emulator.export.tracking import require_trackers, tracking

    require_trackers(names)

    def play(folder: Path, scenario: Scenario, *, show: Show) -> str:
        with tracking(names, comparison=folder.parent.name) as begin:
            return run_or_resume(folder, scenario, show=show, begin=begin)

    return play


def report_comparison(folder: Path | str, *, figures: str = "png") -> Comparison:
    """Write the tables and the figure of a comparison again, from its run folders.

    Raises:
        ConfigError: `folder` has no comparison, or another process is running it.
    """
    folder = Path(folder).resolve()
    plan = _read_plan(folder)
    with owned(folder):
        return conclude(folder, plan, _failures(folder), figures)


def _read_plan(folder: Path) -> ComparisonPlan:
    text = plan_text(folder, "a comparison", "muster compare")
    return ComparisonPlan.from_json(text, str(folder / PLAN))


def _failures(folder: Path) -> dict[str, str]:
    """The reasons of runs that failed, as comparison.json has them; none if it cannot be read."""
    try:
        runs = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["runs"]
        return {run["folder"]: run["detail"] for run in runs if run["status"] == "failed"}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def run_plan(
    folder: Path, plan: ComparisonPlan, figures: str, watch: Watch, play: Play
) -> Comparison:
    """Run what has not ended of a plan, and write the results.

    Args:
        folder: the folder with the plan.
        figures, watch: as for `compare`.
        play: runs a scenario in a folder, and returns its status.
    """
    failures: dict[str, str] = {}
    stopped = False
    with owned(folder):
        for number, planned in enumerate(plan.runs, 1):
            if has_ended(folder / planned.folder):
                continue
            try:
                with watch(f"[{number}/{len(plan.runs)}] {planned.title}") as show:
                    status = play(folder / planned.folder, planned.scenario, show=show)
                    stopped = status == "stopped"
            except KeyboardInterrupt:  # it came outside the loops that handle it as a stop
                stopped = True
            except MusterError as error:
                failures[planned.folder] = str(error)
                stopped = asked_to_stop(error)
            if stopped:
                break
        return conclude(folder, plan, failures, figures, stopped)


def conclude(
    folder: Path,
    plan: ComparisonPlan,
    failures: Mapping[str, str],
    figures: str,
    stopped: bool = False,
) -> Comparison:
    # As in `running`: pandas and matplotlib take seconds to import.
    from muster.emulator.comparison import outcome
    from muster.emulator.comparison.figure import write_figure
    from muster.emulator.comparison.tables import write_tables

    runs = outcome.read_runs(folder, plan, failures)
    ended = runs["status"].isin(ENDED)
    stopped = stopped or bool((runs["status"] == outcome.NOT_RUN).any())
    comparison = Comparison(
        plan.name,
        folder,
        "stopped" if stopped else "completed" if ended.all() else "failed",
        runs,
        outcome.means_of(runs),
        outcome.differences_of(runs),
        outcome.read_courses(folder, plan),
    )
    write_tables(comparison)
    counted = comparison.courses.merge(runs.loc[ended, ["variant", "seed"]])
    write_figure(folder, counted, outcome.targets_of(plan), figures)
    return comparison
