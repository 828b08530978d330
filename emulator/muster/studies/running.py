"""Runs a study: all missing runs, one after another or several at once, and then the judgement.

The folder of a study has `plan.json` from the start and a run folder for every run. When all runs
have ended, `judging` writes the rest. If a run fails, the others still run, and the study fails at
its end.
"""

from collections.abc import Sequence
from pathlib import Path

from muster.common.clock import Clock, WallClock
from muster.common.errors import MusterError
from muster.emulator.comparison.progress import ProgressReporter, Say
from muster.emulator.comparison.run_set import (
    PLAN,
    Watch,
    asked_to_stop,
    has_ended,
    make_folder,
    owned,
    plan_text,
    run_or_resume,
    unwatched,
)
from muster.emulator.records.summary import seconds_text
from muster.emulator.records.tabular import aligned
from muster.simulation.workers import IN_MEMORY, Workers, require, require_jobs
from muster.studies.outcome import Studied
from muster.studies.plan import PlannedRun, StudyPlan, find_study, make_plan, sizes
from muster.studies.study import Options


def study(
    kind: str,
    options: Options,
    *,
    out: Path | str | None = None,
    jobs: int = 1,
    watch: Watch = unwatched,
    say: Say = lambda line: None,
    clock: Clock | None = None,
) -> Studied:
    """Run the study called `kind`, and judge its claims.

    Args:
        kind: a name, or `module:Class`.
        out: the folder to make; default `runs/study-<name>-<time>`.
        jobs: number of runs at once, each in a process of its own.
        watch: shows the runs if they run one at a time.
        say: called with lines that announce the runs, and how each ended and how much is left.

    Raises:
        ConfigError: the request is wrong; nothing was started.
    """
    require_jobs(jobs)
    found = find_study(kind)
    plan = make_plan(kind, options)
    for planned in plan.runs:
        require(planned.run.scenario, options.backend)
    folder = make_folder(
        f"study-{found.name}", None if out is None else Path(out), "muster study", plan.to_json()
    )
    _announce(plan, jobs, say)
    return _go_on(folder.resolve(), plan, jobs, watch, say, clock or WallClock())


def resume_study(
    folder: Path | str,
    *,
    jobs: int = 1,
    watch: Watch = unwatched,
    say: Say = lambda line: None,
    clock: Clock | None = None,
) -> Studied:
    """Resume a study: runs that have ended are not run again, and all claims are judged again.

    Raises:
        ConfigError: `folder` has no study, or another process is running it.
    """
    require_jobs(jobs)
    folder = Path(folder)
    plan = read_plan(folder)
    _ = plan.study  # raises if the study can no longer be found
    for planned in plan.runs:
        if not has_ended(folder / planned.folder):
            require(planned.run.scenario, plan.options.backend)
    return _go_on(folder.resolve(), plan, jobs, watch, say, clock or WallClock())


def read_plan(folder: Path) -> StudyPlan:
    """The plan of the study in `folder`.

    Raises:
        ConfigError: `folder` has no study.
    """
    text = plan_text(folder, "a study", "muster study")
    return StudyPlan.from_json(text, str(folder / PLAN))


def _announce(plan: StudyPlan, jobs: int, say: Say) -> None:
    found, runs = plan.study, [planned.run for planned in plan.runs]
    say(f"{found.name}: {found.about}" + (f" ({found.paper})" if found.paper else ""))
    table = sizes(runs, found.paper_sizes)
    for line in aligned([table.header, *table.rows]):
        say(line)
    total_s = sum(run.expected_s for run in runs)
    say(f"{len(runs)} runs, about {seconds_text(total_s)} on two cores")
    for remark in found.remarks(plan.options):
        say(remark)
    if jobs > 1 and any(not run.scenario.clock.lockstep for run in runs):
        say("Some runs are not in lockstep: with several at once they are slower and may differ")


def _go_on(
    folder: Path, plan: StudyPlan, jobs: int, watch: Watch, say: Say, clock: Clock
) -> Studied:
    with owned(folder):
        missing = [run for run in plan.runs if not has_ended(folder / run.folder)]
        reporter = ProgressReporter(plan.runs, missing, jobs, say)
        if jobs > 1 or plan.options.backend == IN_MEMORY:
            workers = Workers(folder, plan.options.backend, jobs, clock)
            stopped = workers.run(missing, reporter.ended)
        else:
            stopped = _one_by_one(folder, plan, missing, watch, reporter, clock)
        if stopped:
            return Studied(plan.study.name, folder, "stopped", None, reporter.problems)
        say("judging")
        # As in `conclusion`: pandas and matplotlib take seconds to import.
        from muster.studies.judging import conclude

        return conclude(folder, plan, reporter.problems)


def _one_by_one(
    folder: Path,
    plan: StudyPlan,
    missing: Sequence[PlannedRun],
    watch: Watch,
    reporter: ProgressReporter,
    clock: Clock,
) -> bool:
    """Run all of `missing`; return whether the user stopped them."""
    for planned in missing:
        began, problem = clock.monotonic(), ""
        try:
            with watch(reporter.title(planned)) as show:
                status = run_or_resume(
                    folder / planned.folder,
                    planned.run.scenario,
                    backend=plan.options.backend,
                    report=False,
                    show=show,
                )
        except KeyboardInterrupt:  # it came outside the loops that handle it as a stop
            status, problem = "stopped", "stopped"
        except MusterError as error:
            status, problem = "stopped" if asked_to_stop(error) else "failed", str(error)
        reporter.ended(planned, status, problem, clock.monotonic() - began)
        if status == "stopped":
            return True
    return False
