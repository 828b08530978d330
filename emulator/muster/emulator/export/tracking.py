"""Tracks a run while it goes on: a program beside it reads the ledger and tells a tracker what is
new. The run does not know of it, so a tracker that fails or hangs cannot stop or slow it.

Where a tracker's run continues, is kept in `setup/tracking` of the run folder.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import orjson

from muster.common.clock import Clock
from muster.common.config import Section
from muster.common.errors import ConfigError, LedgerError
from muster.common.files import write_atomic
from muster.common.installation import install_command
from muster.common.processes import child_command, child_environment
from muster.emulator.export.metrics import MetricPoint
from muster.emulator.export.tracker import Tracker
from muster.emulator.run_folder.folder import shown

PATIENCE_S = 60.0
"""Seconds that a tracker may take for the end of a run."""

_LEAST_WAIT_S = 1.0
_SHARE = 0.05
"""The most of the time that reading the ledger of a growing run may take."""


class TrackerKind(NamedTuple):
    """A tracker that `--track` can name.

    Attributes:
        make: makes it, for a run folder and the name of the comparison to which the run belongs,
            which is empty if there is none; imports its package.
        package: the package that it needs, which the extra of the same name installs.
    """

    make: Callable[[Path, str], Tracker]
    package: str


def _event_files(run: Path, comparison: str) -> Tracker:
    from muster.emulator.export.event_files import EventFiles

    return EventFiles(Path("exports/tensorboard", comparison, run.name))


def _mlflow(run: Path, comparison: str) -> Tracker:
    from muster.emulator.export.mlflow_store import MlflowStore, uri_of

    out = Path("exports/mlflow")
    out.mkdir(parents=True, exist_ok=True)
    uri = os.environ.get("MLFLOW_TRACKING_URI") or uri_of(out)
    return MlflowStore(out, uri, comparison)


def _wandb(run: Path, comparison: str) -> Tracker:
    from muster.emulator.export.wandb_run import WandbRun

    out = Path("exports")
    out.mkdir(exist_ok=True)
    return WandbRun(out, comparison)


TRACKERS: Mapping[str, TrackerKind] = {
    "mlflow": TrackerKind(_mlflow, "mlflow"),
    "tensorboard": TrackerKind(_event_files, "tensorboard"),
    "wandb": TrackerKind(_wandb, "wandb"),
}


class TrackingProcess(Section):
    """The settings of the program that tracks a run."""

    folder: str
    tracker: str
    comparison: str = ""


def _on_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def require_trackers(names: Iterable[str]) -> None:
    """Check that runs can be tracked.

    Raises:
        ConfigError: there is no tracker of a name, or its package is not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker {name!r}; expected {', '.join(TRACKERS)}")
        package = TRACKERS[name].package
        if find_spec(package) is None:
            raise ConfigError(
                f"--track {name} needs {package}, which is not installed; {install_command(name)}"
            )


@contextmanager
def tracking(
    names: Sequence[str],
    say: Callable[[str], object] = _on_standard_error,
    patience_s: float = PATIENCE_S,
    comparison: str = "",
) -> Iterator[Callable[[Path], None]]:
    """Yield a function that starts the trackers of these names for a run folder. When the body has
    ended, they get what is new for the last time.

    Args:
        say: told, in a sentence, of every tracker that failed.
        patience_s: how long to wait for each of them at the end.
        comparison: the name of the comparison to which the runs belong.

    Raises:
        ConfigError: the package of a tracker is not installed.
    """
    require_trackers(names)
    started: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def start(folder: Path) -> None:
        for name in dict.fromkeys(names):
            log = folder / f"logs/track-{name}.log"
            process = TrackingProcess(folder=str(folder), tracker=name, comparison=comparison)
            started[name] = _started(process, log), log

    try:
        yield start
    finally:
        for program, _ in started.values():
            assert program.stdin is not None
            with suppress(OSError):
                program.stdin.close()
        for name, (program, log) in started.items():
            if problem := _problem(program, patience_s):
                say(f"--track {name} {problem}; the run is not affected. See {shown(log)}")


def _started(process: TrackingProcess, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        program = subprocess.Popen(
            child_command("muster.emulator.export"),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=child_environment(),
            start_new_session=True,  # Ctrl-C is for the run, which then ends this program
        )
    assert program.stdin is not None
    with suppress(BrokenPipeError):
        program.stdin.write(process.to_json().encode() + b"\n")
        program.stdin.flush()
    return program


def _problem(program: subprocess.Popen[bytes], patience_s: float) -> str:
    """Wait for the end of a tracker's program; return what was wrong with it."""
    try:
        status = program.wait(patience_s)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)  # also what it has started
        program.wait()
        return f"did not end within {patience_s:g} s, and was killed"
    return f"failed with status {status}" if status else ""


def main(clock: Clock) -> None:
    """Track the run that standard input names, until that is closed."""
    os.nice(10)
    process = TrackingProcess.model_validate_json(sys.stdin.readline())
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    folder = Path(process.folder)
    state = folder / f"setup/tracking/{process.tracker}.json"
    tracker = TRACKERS[process.tracker].make(folder, process.comparison)
    follow(folder, tracker, state, ended.wait, clock)


def follow(
    folder: Path,
    tracker: Tracker,
    state: Path,
    wait: Callable[[float], bool],
    clock: Clock,
) -> None:
    """Tell a tracker what is new in a run, from time to time, until the run has ended.

    Args:
        state: the file that says which values the tracker has.
        wait: waits so many seconds, or until the run has ended; returns whether it has.
    """
    from muster.emulator.export.metrics import metric_points
    from muster.emulator.records.account import Account

    told: dict[str, int] = orjson.loads(state.read_bytes()) if state.exists() else {}
    began, pause_s, ended = False, _LEAST_WAIT_S, False
    state.parent.mkdir(exist_ok=True)
    while not ended:
        ended = wait(pause_s)
        since = clock.monotonic()
        try:
            account = Account(folder)
        except LedgerError:  # the server has not begun the run
            continue
        with account:
            if not began:
                tracker.begin(account)
                began = True
            if points := news(metric_points(account), told):
                tracker.log(points)
                told |= {point.name: point.round for point in points}
                write_atomic(state, orjson.dumps(told))
            if ended:
                tracker.end(account)
        pause_s = max(_LEAST_WAIT_S, (clock.monotonic() - since) / _SHARE)


def news(points: Sequence[MetricPoint], told: Mapping[str, int]) -> list[MetricPoint]:
    """The values that a tracker does not have: those of later rounds than the last of their name.

    Args:
        told: the last round of each name.
    """
    return [point for point in points if point.round > told.get(point.name, -1)]
