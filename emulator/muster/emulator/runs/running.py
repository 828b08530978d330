"""Running a scenario: the one thing the command line and Python both call."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.common.clock import Clock, WallClock
from muster.common.errors import ConfigError, RunFailed, reason_of
from muster.emulator.launch.backend import BackendName
from muster.emulator.launch.choice import backend_of
from muster.emulator.runs import doctor
from muster.emulator.runs.conclusion import conclude
from muster.emulator.runs.resumption import require_resumable
from muster.emulator.runs.run_folder import new_run_folder, own, run_folder
from muster.emulator.runs.supervisor import Show, Supervisor
from muster.emulator.scenario.scenario import Scenario, read_scenario

if TYPE_CHECKING:
    from muster.emulator.results.account import Account


@dataclass(frozen=True)
class Run:
    """A run that came to its end.

    Attributes:
        folder: everything it left.
        summary: as in summary.json.
        ledger: the account, as pandas data frames: `run.ledger.rounds`.
    """

    folder: Path
    summary: dict[str, Any]
    ledger: "Account"

    @property
    def status(self) -> str:
        """completed, diverged, stopped or failed."""
        return str(self.summary["status"])


def run(
    scenario: Scenario | Path | str,
    *,
    out: Path | str | None = None,
    backend: BackendName = "processes",
    report: bool = True,
    show: Show = lambda event: None,
    clock: Clock | None = None,
) -> Run:
    """Run a scenario over real processes and sockets, and report on it.

    Args:
        scenario: a scenario, or the path of its TOML file.
        out: the run folder to make; default `runs/<name>-<time>`.
        backend: what the fleet's programs are: processes of this machine, or containers.
        report: also draw the report; `muster report` can at any time.
        show: called with every event of the journal.

    Raises:
        ConfigError: the scenario is wrong; nothing was started, or nothing of it is left.
        RunFailed: the run failed; the folder holds what it did, and can be resumed.
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(Path(scenario))
    require(scenario, backend)
    chosen = None if out is None else Path(out)
    with new_run_folder(scenario.name, chosen, scenario.to_toml()) as folder:
        return _run_in(folder.resolve(), scenario, backend, report, show, clock or WallClock())


def resume(
    folder: Path | str,
    *,
    backend: BackendName = "processes",
    report: bool = True,
    show: Show = lambda event: None,
    clock: Clock | None = None,
) -> Run:
    """Go on with a run where its ledger ends; a run that is complete is reported again.

    Raises:
        ConfigError: there is no run in `folder`, it is going on, or its files are not as it left
            them; nothing was started.
        LedgerError: its account is damaged; nothing was started.
        RunFailed: it failed again.
    """
    folder = run_folder(Path(folder))
    scenario = read_scenario(folder / "scenario.toml")
    require(scenario, backend)
    return _run_in(folder, scenario, backend, report, show, clock or WallClock())


def require(scenario: Scenario, backend: BackendName) -> None:
    """Refuse what this machine cannot run, before anything is made or started.

    Raises:
        ConfigError: naming what is missing.
    """
    if backend == "docker":
        from muster.emulator.launch.docker import containers

        containers.require(scenario)
    else:
        doctor.require(scenario)


def _run_in(
    folder: Path,
    scenario: Scenario,
    backend: BackendName,
    report: bool,
    show: Show,
    clock: Clock,
) -> Run:
    with ExitStack() as stack:
        stack.enter_context(own(folder))
        require_resumable(folder)
        failure: RunFailed | None = None
        try:
            _drive(_supervise(scenario, folder, backend, clock, show))
        except RunFailed as error:
            failure = error
        except OSError as error:
            failure = RunFailed(
                f"{reason_of(error)}\nGo on where it was: muster run --resume {folder}"
            )
        try:
            concluded = conclude(folder, "failed" if failure else None, report=report)
        except OSError as error:
            raise RunFailed(
                f"{failure or 'the run has ended'}\n"
                f"Its summary and report cannot be written: {reason_of(error)}\n"
                f"Make room, then write them: muster run --resume {folder}"
            ) from None
        if concluded is None:
            raise failure or RunFailed(f"the run left no ledger that can be read in {folder}")
        summary, account = concluded
        if failure is not None:
            raise failure
        if summary["status"] == "failed":
            raise RunFailed(
                f"{account.run.detail}\n"
                f"What it did: {f'{folder}/report.html' if report else f'muster report {folder}'}\n"
                f"Go on where it was: muster run --resume {folder}"
            )
        return Run(folder, summary, account)


async def _supervise(
    scenario: Scenario, folder: Path, backend: BackendName, clock: Clock, show: Show
) -> None:
    supervisor = Supervisor(scenario, folder, clock, show, backend_of(backend))
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, supervisor.stop)
    await supervisor.run()


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _drive(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine, also where an event loop runs already (a notebook)."""
    if not _loop_is_running():
        asyncio.run(work)
        return
    failure: list[BaseException] = []

    def other_thread() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=other_thread, name="muster")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


__all__ = ["ConfigError", "Run", "require", "resume", "run"]
