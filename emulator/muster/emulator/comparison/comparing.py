"""Runs what a plan says, one run after another, and writes what came of it.

The folder of a comparison holds `plan.json` from the start, a run folder for every run, and
`comparison.*` at the end. Going on means: leave what has ended, resume what began, run the rest.
"""

import fcntl
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.common.errors import ConfigError, MusterError
from muster.common.files import write_atomic
from muster.emulator import doctor, running
from muster.emulator.comparison.plan import Plan, PlannedRun, make_plan
from muster.emulator.summary import read_summary
from muster.emulator.supervisor import Show

if TYPE_CHECKING:
    import pandas as pd

PLAN = "plan.json"

Watch = Callable[[str], AbstractContextManager[Show]]
"""Called with the title of each run; what it yields is shown the run's events. A failure of the run
passes through it."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to.

    Attributes:
        name: what the scenario calls itself.
        folder: everything it left.
        status: completed; failed (some runs did, see `runs`); or stopped (it can be resumed).
        runs: one row per run, as in comparison.csv.
        means: one row per variant and measure: n, mean, and its 95 % confidence interval from low
            to high (Student t over the seeds; NaN with one seed).
        differences: the same of each variant minus the first, between runs of one seed.
        courses: one row per evaluation of each run, also of one that failed: round, loss, accuracy,
            bytes until then.
    """

    name: str
    folder: Path
    status: str
    runs: "pd.DataFrame"
    means: "pd.DataFrame"
    differences: "pd.DataFrame"
    courses: "pd.DataFrame"


def _unwatched(title: str) -> AbstractContextManager[Show]:
    return nullcontext(lambda event: None)


def compare(
    scenario: Path | str,
    *,
    vary: Mapping[str, Sequence[Any]],
    seeds: int = 1,
    settings: Sequence[str] = (),
    data: str | None = None,
    out: Path | str | None = None,
    watch: Watch = _unwatched,
) -> Comparison:
    """Run a scenario once for every value of `vary` and every seed, and compare the runs.

    A run that fails does not keep the others from running.

    Args:
        scenario: path of its TOML file.
        vary: dotted key to its values; of several keys every combination is a variant.
        seeds: how many: the scenario's seed, that plus 1, …; the same for each variant.
        settings: `key=value` as of `--set`, for all variants.
        data: the data directory.
        out: the folder to make; default `runs/<name>-compare-<time>`.
        watch: shows the runs.

    Raises:
        ConfigError: a variant or the request is wrong; nothing was started.
    """
    plan = make_plan(Path(scenario), vary, seeds, settings, data)
    folder = _make_folder(plan.name, Path(out) if out is not None else None)
    write_atomic(folder / PLAN, plan.to_json().encode())
    return _go_on(folder.resolve(), plan, watch)


def resume_comparison(folder: Path | str, *, watch: Watch = _unwatched) -> Comparison:
    """Go on with a comparison: what has ended is not run again.

    Raises:
        ConfigError: there is none in `folder`, or it is going on.
    """
    folder = Path(folder)
    try:
        text = (folder / PLAN).read_text(encoding="utf-8")
    except OSError:
        raise ConfigError(
            f"{folder} is not a comparison: it has no {PLAN}. `muster compare` makes them"
        ) from None
    plan = Plan.from_json(text, str(folder / PLAN))
    for planned in plan.runs:
        if not _has_ended(folder / planned.folder):
            doctor.require(planned.scenario)
    return _go_on(folder.resolve(), plan, watch)


def _go_on(folder: Path, plan: Plan, watch: Watch) -> Comparison:
    failures: dict[str, str] = {}
    stopped = False
    with _own(folder):
        for number, planned in enumerate(plan.runs, 1):
            if _has_ended(folder / planned.folder):
                continue
            try:
                with watch(f"[{number}/{len(plan.runs)}] {planned.title}") as show:
                    stopped = _run(folder / planned.folder, planned, show) == "stopped"
            except KeyboardInterrupt:  # between the loops that take it as a wish to stop
                stopped = True
            except MusterError as error:
                failures[planned.folder] = str(error)
                # A run that is stopped while it starts or ends has no other way to say so.
                stopped = str(error).startswith("stopped")
            if stopped:
                break
        return _conclude(folder, plan, failures, stopped)


def _has_ended(run: Path) -> bool:
    return read_summary(run).get("status") in ("completed", "diverged")


def _run(folder: Path, planned: PlannedRun, show: Show) -> str:
    began = (folder / "scenario.toml").exists()
    done = (
        running.resume(folder, show=show)
        if began
        else running.run(planned.scenario, out=folder, show=show)
    )
    done.ledger.close()
    return done.status


def _conclude(folder: Path, plan: Plan, failures: Mapping[str, str], stopped: bool) -> Comparison:
    # As in `running`: pandas and matplotlib take seconds to import.
    from muster.emulator.comparison import outcome
    from muster.emulator.comparison.figure import write_figure
    from muster.emulator.comparison.tables import write_tables

    runs = outcome.read_runs(folder, plan, failures)
    ended = runs["status"].isin(outcome.ENDED)
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
    write_figure(folder / "comparison.png", counted)
    return comparison


def _make_folder(name: str, out: Path | None) -> Path:
    folder = out
    if folder is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = Path("runs") / f"{name}-compare-{stamp}"
        while folder.exists():
            folder = folder.with_name(f"{name}-compare-{stamp}-{secrets.token_hex(2)}")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--out {folder} exists and is not an empty folder; name another, or go on with it "
            f"by muster compare --resume {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """Lock the comparison for this process.

    Raises:
        ConfigError: another process runs it.
    """
    with open(folder / PLAN) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another muster is comparing in {folder}; let it end") from None
        yield
