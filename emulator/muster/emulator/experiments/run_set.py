"""Several runs in one folder: what comparisons and studies have in common.

The folder holds `plan.json` from the start and a run folder for every run. Going on means: leave
what has ended, resume what began, run the rest.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from muster.common.errors import ConfigError, MusterError
from muster.common.files import write_atomic
from muster.emulator.results.summary import read_summary
from muster.emulator.runs import running
from muster.emulator.runs.run_folder import making, new_folder
from muster.emulator.runs.supervisor import Show
from muster.emulator.scenario.scenario import Scenario

PLAN = "plan.json"

ENDED = ("completed", "diverged")
"""A run that came to its own end counts, and is not run again."""

Watch = Callable[[str], AbstractContextManager[Show]]
"""Called with the title of each run; what it yields is shown the run's events. A failure of the run
passes through it."""


def unwatched(title: str) -> AbstractContextManager[Show]:
    return nullcontext(lambda event: None)


def make_folder(name: str, out: Path | None, command: str, plan: str) -> Path:
    """Make `out`, or `runs/<name>-<time>`, with a plan in it.

    Args:
        command: how to go on with what a folder holds already, for the message.
        plan: JSON of what will be run.

    Raises:
        ConfigError: `out` holds something already, or cannot be written; nothing is left of it.
    """
    folder = new_folder(name, out, command)
    with making(folder):
        write_atomic(folder / PLAN, plan.encode())
    return folder


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock the folder for this process.

    Raises:
        ConfigError: another process is at work in it.
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
    """Run the scenario in `folder`, or go on there; return how it ended.

    Args:
        options: as of `running.run`.

    Raises:
        MusterError: it failed.
    """
    began = (folder / "scenario.toml").exists()
    done = (
        running.resume(folder, **options) if began else running.run(scenario, out=folder, **options)
    )
    done.ledger.close()
    return done.status


def asked_to_stop(error: MusterError) -> bool:
    """Whether the run failed because it was stopped while it started or ended, when it has no other
    way to say so."""
    return str(error).startswith("stopped")
