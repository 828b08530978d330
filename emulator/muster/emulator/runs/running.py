"""Runs and resumes scenarios. Both the command line and Python code call these functions."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.common.causes import EVALUATION_ENDED, OWN_CODE_FAILED, outer_cause
from muster.common.clock import Clock, WallClock
from muster.common.concurrency import on_stop, run_to_end
from muster.common.errors import ConfigError, RunFailed, reason_of
from muster.common.events import Ended
from muster.emulator.credentials.issuing import certifier_of, remove_credentials
from muster.emulator.launch.backend import BackendName
from muster.emulator.launch.choice import kind_of
from muster.emulator.launch.starting import quoted
from muster.emulator.records.inputs import announce_own_code
from muster.emulator.records.ledger_file import read_ledger
from muster.emulator.records.manifest import Read, damaged_files, unseal
from muster.emulator.run_folder.folder import (
    LEDGER,
    new_run_folder,
    own,
    resume_advice,
    resume_command,
    run_folder,
)
from muster.emulator.runs.conclusion import conclude, import_for_conclusion
from muster.emulator.runs.more_rounds import lacks_rounds, require_rounds, write_rounds
from muster.emulator.runs.resumption import require_resumable
from muster.emulator.runs.supervisor import SHOW_EVERY_S, Show, Supervisor
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from muster.emulator.records.account import Account


Begin = Callable[[Path], None]
"""Called with the run folder before any process of the run starts."""


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    Attributes:
        folder: the run folder with all its files.
        summary: the content of summary.json.
        ledger: the ledger as pandas data frames, for example `run.ledger.rounds`.
        began: whether the fleet was started; not if a run was resumed that was complete.
    """

    folder: Path
    summary: dict[str, Any]
    ledger: "Account"
    began: bool = True

    @property
    def status(self) -> str:
        """The run's status: completed, diverged, stopped or failed."""
        return str(self.summary["status"])


def run(
    scenario: Scenario | Path | str,
    *,
    out: Path | str | None = None,
    backend: BackendName = "processes",
    report: bool = True,
    show: Show = lambda event: None,
    show_every_s: float = SHOW_EVERY_S,
    clock: Clock | None = None,
    begin: Begin | None = None,
) -> Run:
    """Run a scenario over real processes and sockets, and write its summary and report.

    Args:
        scenario: a scenario, or the path of its TOML file.
        out: the run folder to make; default `runs/<name>-<time>`.
        backend: whether the fleet's programs run as processes of this machine or in containers.
        report: whether to write the report; `muster report` can also write it later.
        show: called with every event of the journal.
        show_every_s: seconds between two reads of the journal for `show`.
        begin: called with the run folder before any process starts.

    Raises:
        ConfigError: the scenario is wrong. Nothing was started, or all of it was removed again.
        RunFailed: the run failed. Its folder holds its results so far and can be resumed.
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(Path(scenario))
    require(scenario, backend)
    chosen = None if out is None else Path(out)
    with new_run_folder(scenario.name, chosen, scenario.to_toml()) as folder:
        return _run_in(
            folder.resolve(),
            scenario,
            backend,
            report,
            show,
            show_every_s,
            clock or WallClock(),
            begin,
        )


def resume(
    folder: Path | str,
    *,
    rounds: int | None = None,
    backend: BackendName = "processes",
    report: bool = True,
    show: Show = lambda event: None,
    show_every_s: float = SHOW_EVERY_S,
    clock: Clock | None = None,
    begin: Begin | None = None,
) -> Run:
    """Resume the run in a folder where its ledger ends. If the run is complete, only its summary
    and report are written again.

    Args:
        rounds: the number of rounds to run in all, in place of `server.rounds` of its scenario.

    Raises:
        ConfigError: there is no run in `folder`, it is still running, or its files are not as it
            left them. Nothing was started.
        LedgerError: its ledger is damaged. Nothing was started.
        RunFailed: the run failed again.
    """
    folder = run_folder(Path(folder))
    changed = [] if rounds is None else [("server.rounds", rounds)]
    scenario = read_scenario(folder / "scenario.toml", changed)
    require(scenario, backend)
    return _run_in(
        folder, scenario, backend, report, show, show_every_s, clock or WallClock(), begin
    )


def require(scenario: Scenario, backend: BackendName) -> None:
    """Check that this machine can run a scenario, before anything is made or started.

    Raises:
        ConfigError: it cannot; the message names what is missing.
    """
    kind_of(backend).require(scenario)


def _run_in(
    folder: Path,
    scenario: Scenario,
    backend: BackendName,
    report: bool,
    show: Show,
    show_every_s: float,
    clock: Clock,
    begin: Begin | None,
) -> Run:
    with ExitStack() as stack:
        stack.enter_context(own(folder))
        require_resumable(folder, scenario)
        require_rounds(folder, scenario)
        if _is_complete(folder) and not lacks_rounds(folder, scenario):
            for difference in damaged_files(folder, Read.AUDIT):
                raise ConfigError(difference.sentence(folder))
            return Run(folder, *_concluded(folder, report, None, {}), began=False)
        announce_own_code(folder)
        unseal(folder)
        write_rounds(folder, scenario.server.rounds)
        if begin is not None:
            begin(folder)
        failure: RunFailed | None = None
        ended: dict[str, Any] = {}

        def seen(event: dict[str, Any]) -> None:
            if event["event"] == Ended.name:
                ended.update(event)
            show(event)

        try:
            run_to_end(_supervise(scenario, folder, backend, clock, seen, show_every_s, report))
        except RunFailed as error:
            failure = error
        except Exception as error:
            if not isinstance(error, OSError) and not outer_cause(error):
                raise
            why = reason_of(error)
            again = f"\nResume the run with: {resume_command(folder)}"
            advice = resume_advice(folder, why) if OWN_CODE_FAILED in why else again
            failure = RunFailed(f"{why}{advice}")
        summary, account = _concluded(folder, report, failure, ended)
        if failure is not None:
            raise failure
        if summary["status"] == "failed":
            where = f"{folder}/report.html" if report else f"muster report {folder}"
            detail = str(account.run.detail)
            why = detail + _log_behind(detail, folder)
            raise RunFailed(f"{why}\nSee its report: {where}{resume_advice(folder, why)}")
        return Run(folder, summary, account)


def _concluded(
    folder: Path, report: bool, failure: RunFailed | None, ended: Mapping[str, Any]
) -> "tuple[dict[str, Any], Account]":
    """Write the summary and the report of a run.

    Args:
        failure: the failure with which the run ended here.
        ended: the event of its end, if it came.

    Raises:
        RunFailed: they cannot be written, or there is no ledger.
    """
    try:
        concluded = conclude(folder, "failed" if failure else None, report=report)
    except OSError as error:
        raise RunFailed(
            f"{failure or _how_it_ended(ended)}\n"
            f"Its summary and report cannot be written: {reason_of(error)}\n"
            f"Free some space, then write them with: {resume_command(folder)}"
        ) from None
    if concluded is None:
        raise failure or RunFailed(f"the run left no ledger that can be read in {folder}")
    return concluded


def _is_complete(folder: Path) -> bool:
    """Whether the run in a folder has done all of its rounds, so that nothing is left to resume."""
    path = folder / LEDGER
    if not path.is_file() or not path.stat().st_size:
        return False
    with read_ledger(path) as ledger:
        return ledger.execute("SELECT status FROM run").fetchall() == [("completed",)]


def _log_behind(detail: str, folder: Path) -> str:
    """The end of the evaluation's log, as the rest of a sentence, if its death ended the run. That
    death is not always in the journal, because the server may end before a backend hears of it."""
    log = folder / "logs/evaluation.log"
    if not detail.startswith(EVALUATION_ENDED) or not log.is_file():
        return ""
    return quoted(log.read_text(errors="replace"), log)


def _how_it_ended(ended: Mapping[str, Any]) -> str:
    """How a run ended, by the event of its end, which a full disk may have kept out."""
    failed = ended.get("status") == "failed"
    return f"the run failed: {ended['detail']}" if failed else "the run has ended"


async def _supervise(
    scenario: Scenario,
    folder: Path,
    backend: BackendName,
    clock: Clock,
    show: Show,
    show_every_s: float,
    report: bool,
) -> None:
    supervisor = Supervisor(scenario, folder, clock, show, kind_of(backend).make, show_every_s)
    on_stop(supervisor.stop)
    certifier = certifier_of(scenario.launch, supervisor.backend.encrypts, clock)
    try:
        host = supervisor.backend.metrics_host
        issuer = supervisor.configs.issue_credentials(certifier, host)
        renewing = asyncio.create_task(issuer.keep_renewing())
        # While the programs of the run import what they need, this one has nothing else to do.
        importing = asyncio.create_task(asyncio.to_thread(import_for_conclusion, report))
        try:
            await supervisor.run()
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, importing, return_exceptions=True)
    finally:
        remove_credentials(folder)


__all__ = ["ConfigError", "Run", "require", "resume", "run"]
