"""Several runs in one folder: the common part of comparisons and studies.

From the start, the folder has `plan.json`, and later a run folder for every run. To resume means:
keep the runs that have ended, resume those that have begun, and run the rest.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from muster.common.errors import ConfigError, MusterError
from muster.common.files import write_atomic
from muster.emulator.records.summary import read_summary
from muster.emulator.run_folder.folder import making, new_folder
from muster.emulator.runs import running
from muster.emulator.runs.supervisor import Show
from muster.emulator.scenario.scenario import Scenario

PLAN = "plan.json"

ENDED = ("completed", "diverged")
"""Statuses of runs that ended by themselves: they count, and are not run again."""

Watch = Callable[[str], AbstractContextManager[Show]]
"""Called with the title of each run. The context manager yields a function that receives the run's
events. The exception of a failed run passes through it."""


class Planned(Protocol):
    """One run of several."""

    @property
    def folder(self) -> str:
        """Its run folder, relative to the folder of all."""

    @property
    def title(self) -> str: ...

    @property
    def scenario(self) -> Scenario: ...

    @property
    def expected_s(self) -> float:
        """The seconds that it should take, in proportion to the other runs."""


class Play(Protocol):
    """Runs a scenario in a folder, or goes on with the run there."""

    def __call__(self, folder: Path, scenario: Scenario, *, show: Show) -> str:
        """Return the status of the run.

        Raises:
            MusterError: the run failed.
        """


def unwatched(title: str) -> AbstractContextManager[Show]:
    return nullcontext(lambda event: None)


def make_folder(name: str, out: Path | None, command: str, plan: str) -> Path:
    """Make the folder `out`, or `runs/<name>-<time>`, and write the plan into it.

    Args:
        command: command that resumes an existing folder, for the error message.
        plan: the plan as JSON.

    Raises:
        ConfigError: `out` is not empty or cannot be written; nothing of it is left behind.
    """
    folder = new_folder(name, out, command)
    with making(folder):
        write_atomic(folder / PLAN, plan.encode())
    return folder


def plan_text(folder: Path, what: str, command: str) -> bytes:
    """The plan in a folder, as it was written.

    Args:
        what: what the folder should be, with its article.
        command: command that makes such folders, for the error message.

    Raises:
        ConfigError: there is none.
    """
    try:
        return (folder / PLAN).read_bytes()
    except OSError:
        raise ConfigError(
            f"{folder} is not {what}: it has no {PLAN}. `{command}` makes them"
        ) from None


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock the folder for this process.

    Raises:
        ConfigError: another process has locked it.
    """
    with open(folder / PLAN) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another muster is at work in {folder}; let it end") from None
        yield


def has_ended(run: Path) -> bool:
    return read_summary(run).get("status") in ENDED


def run_or_resume(folder: Path, scenario: Scenario, **options: Any) -> str:
    """Run the scenario in `folder`, or resume the run there; return its status.

    Args:
        options: the options of `running.run`.

    Raises:
        MusterError: the run failed.
    """
    began = (folder / "scenario.toml").exists()
    done = (
        running.resume(folder, **options) if began else running.run(scenario, out=folder, **options)
    )
    done.ledger.close()
    return done.status


def asked_to_stop(error: MusterError) -> bool:
    """Whether a run failed because it was stopped while it started or ended.

    At these times, a run can report that it was stopped only by an error.
    """
    return str(error).startswith("stopped")
