"""Several runs in one folder: what comparisons and studies have in common.

The folder holds `plan.json` from the start and a run folder for every run. Going on means: leave
what has ended, resume what began, run the rest.
"""

import fcntl
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from muster.common.errors import ConfigError, MusterError
from muster.emulator import running
from muster.emulator.scenario import Scenario
from muster.emulator.summary import read_summary
from muster.emulator.supervisor import Show

PLAN = "plan.json"

ENDED = ("completed", "diverged")
"""A run that came to its own end counts, and is not run again."""

Watch = Callable[[str], AbstractContextManager[Show]]
"""Called with the title of each run; what it yields is shown the run's events. A failure of the run
passes through it."""


def unwatched(title: str) -> AbstractContextManager[Show]:
    return nullcontext(lambda event: None)


def make_folder(name: str, out: Path | None, command: str) -> Path:
    """Make `out`, or `runs/<name>-<time>`.

    Args:
        command: how to go on with what a folder holds already, for the message.

    Raises:
        ConfigError: `out` holds something already.
    """
    folder = out
    if folder is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = Path("runs") / f"{name}-{stamp}"
        while folder.exists():
            folder = folder.with_name(f"{name}-{stamp}-{secrets.token_hex(2)}")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--out {folder} exists and is not an empty folder; name another, or go on with it "
            f"by {command} --resume {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
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
