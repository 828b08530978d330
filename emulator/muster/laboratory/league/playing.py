"""Plays a league in virtual time, in several processes at once, and writes its table.

The folder of a league has `plan.json` from the start, and for every scenario the folder of a
comparison, in which the run folders are. To resume means: keep the runs that have ended, and play
the others from their beginning.
"""

from collections.abc import Sequence
from pathlib import Path

from muster.common.clock import Clock, WallClock
from muster.emulator.comparison.progress import ProgressReporter, Say
from muster.emulator.comparison.run_set import PLAN, has_ended, make_folder, owned, plan_text
from muster.laboratory.league.plan import (
    FIRST_SEED,
    SEEDS,
    LeaguePlan,
    make_plan,
)
from muster.laboratory.league.standings import League
from muster.simulation.workers import IN_MEMORY, Workers, require_jobs


def league(
    rules: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    *,
    seeds: int = SEEDS,
    first_seed: int = FIRST_SEED,
    target: float = 0.8,
    data: str | None = None,
    out: Path | str | None = None,
    jobs: int = 1,
    say: Say = lambda line: None,
    clock: Clock | None = None,
) -> League:
    """Play every scenario with every rule and every seed, and compare the rules.

    If a run fails, the others are still played.

    Args:
        rules, scenarios, seeds, first_seed, target, data: as for `make_plan`.
        out: the folder to make; default `runs/league-<time>`.
        jobs: number of runs at once, each in a process of its own.
        say: called with lines that say how each run ended and how much is left.

    Raises:
        ConfigError: the request is wrong; nothing was started.
    """
    require_jobs(jobs)
    plan = make_plan(rules, scenarios, seeds, first_seed, target, data)
    folder = make_folder(
        "league", None if out is None else Path(out), "muster league", plan.to_json()
    )
    return _play(folder.resolve(), plan, jobs, say, clock or WallClock())


def resume_league(
    folder: Path | str,
    *,
    jobs: int = 1,
    say: Say = lambda line: None,
    clock: Clock | None = None,
) -> League:
    """Resume a league: runs that have ended are not played again.

    Raises:
        ConfigError: `folder` has no league, or another process is playing it.
    """
    require_jobs(jobs)
    folder = Path(folder)
    text = plan_text(folder, "a league", "muster league")
    plan = LeaguePlan.from_json(text, str(folder / PLAN))
    return _play(folder.resolve(), plan, jobs, say, clock or WallClock())


def _play(folder: Path, plan: LeaguePlan, jobs: int, say: Say, clock: Clock) -> League:
    with owned(folder):
        cells = plan.cells
        missing = [cell for cell in cells if not has_ended(folder / cell.folder)]
        reporter = ProgressReporter(cells, missing, jobs, say)
        stopped = Workers(folder, IN_MEMORY, jobs, clock).run(missing, reporter.ended)
        say("writing the tables")
        # As in `conclusion`: pandas and matplotlib take seconds to import.
        from muster.laboratory.league.page import write_pages
        from muster.laboratory.league.standings import standings_of

        # Who stops a league stops its runs, too: that is no failure of theirs.
        found = standings_of(folder, plan, {} if stopped else reporter.problems)
        write_pages(found)
        return found
