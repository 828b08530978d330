"""Runs a study: all missing runs, one after another or several at once, and then the judgement.

The folder of a study has `plan.json` from the start and a run folder for every run. When all runs
have ended, `judging` writes the rest. If a run fails, the others still run, and the study fails at
its end.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from muster.common.clock import Clock, WallClock
from muster.common.errors import ConfigError, MusterError
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
from muster.emulator.records.summary import clean, seconds_text
from muster.emulator.records.tabular import aligned
from muster.emulator.runs import running
from muster.studies.outcome import Studied
from muster.studies.plan import PlannedRun, StudyPlan, find_study, make_plan, sizes
from muster.studies.study import Options
from muster.studies.workers import Workers


class Pace:
    """The remaining seconds, corrected by the measured pace.

    Args:
        expected: expected seconds of every run that is still to be done.
        at_once: number of runs at the same time.
    """

    def __init__(self, expected: Iterable[float], at_once: int = 1) -> None:
        self._left = list(expected)
        self._at_once = at_once
        self._done = self._took = 0.0

    def done(self, expected_s: float, took_s: float) -> None:
        """Record that a run that was expected to take `expected_s` took `took_s`."""
        self._left.remove(expected_s)
        self._done += expected_s
        self._took += took_s

    @property
    def left_s(self) -> float:
        """Seconds until the last run has ended, at the pace so far."""
        pace = self._took / self._done if self._done > 0 else 1.0
        return pace * sum(self._left) / self._at_once


Say = Callable[[str], None]


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
    _require_jobs(jobs)
    found = find_study(kind)
    plan = make_plan(kind, options)
    for planned in plan.runs:
        running.require(planned.run.scenario, options.backend)
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
    _require_jobs(jobs)
    folder = Path(folder)
    plan = read_plan(folder)
    _ = plan.study  # raises if the study can no longer be found
    for planned in plan.runs:
        if not has_ended(folder / planned.folder):
            running.require(planned.run.scenario, plan.options.backend)
    return _go_on(folder.resolve(), plan, jobs, watch, say, clock or WallClock())


def read_plan(folder: Path) -> StudyPlan:
    """The plan of the study in `folder`.

    Raises:
        ConfigError: `folder` has no study.
    """
    text = plan_text(folder, "a study", "muster study")
    return StudyPlan.from_json(text, str(folder / PLAN))


def _require_jobs(jobs: int) -> None:
    cores = len(os.sched_getaffinity(0))
    if not 1 <= jobs <= cores:
        raise ConfigError(f"--jobs: expected 1 to {cores}, the cores of this machine; found {jobs}")


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
        reporter = _ProgressReporter(plan, missing, jobs, say)
        if jobs > 1:
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
    reporter: "_ProgressReporter",
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


class _ProgressReporter:
    """Reports how each run ended and how long the rest will take, and keeps reasons of failures.

    Attributes:
        problems: title of a run to the reason why it has no result.
    """

    def __init__(
        self, plan: StudyPlan, missing: Sequence[PlannedRun], at_once: int, say: Say
    ) -> None:
        self._numbers = {run.folder: number for number, run in enumerate(plan.runs, 1)}
        self._total = len(plan.runs)
        self._left = len(missing)
        self._pace = Pace([run.run.expected_s for run in missing], at_once)
        self._say = say
        self.problems: dict[str, str] = {}

    def title(self, planned: PlannedRun) -> str:
        """For example "[7/40] A fedipw strength=1.5 seed 101"."""
        return f"[{self._numbers[planned.folder]}/{self._total}] {planned.run.title}"

    def ended(self, planned: PlannedRun, status: str, problem: str, took_s: float) -> None:
        self._left -= 1
        self._pace.done(planned.run.expected_s, took_s)
        how = "" if status == "completed" else f" {status}"
        if problem:
            self.problems[planned.run.title] = problem
            how += f" ({clean(problem.partition(chr(10))[0])})"
        left = f"; about {seconds_text(round(self._pace.left_s))} left" if self._left else ""
        self._say(f"{self.title(planned)},{how and f'{how},'} {seconds_text(took_s)}{left}")
