"""The status of a run, and its events as they happen.

The journal has the events so far. The server sends the newer ones while it runs. A run that has
ended has no server, but its journal and summary remain.
"""

import json
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from muster.common.errors import Unreachable
from muster.emulator.following.live_events import live_events
from muster.emulator.following.progress import ending_of, facts_of, time_left
from muster.emulator.following.run_progress import RunProgress
from muster.emulator.records.manifest import intact_folder
from muster.emulator.records.summary import describe, read_summary
from muster.emulator.run_folder import control
from muster.emulator.run_folder.folder import (
    COMPOSE,
    JOURNAL,
    is_free,
    resume_command,
    shown,
)
from muster.emulator.run_folder.journal_tail import Tail, journal_events

_OVERLAP = 10_000
"""Newest events that are compared with others, so that none is yielded twice."""

_SUPERVISOR = "supervisor"


@dataclass(frozen=True)
class OpenRound:
    """The round that the server runs at the moment.

    Attributes:
        called, answered, updates: devices called, answers received, and updates received.
    """

    number: int
    phase: str
    called: int
    answered: int
    updates: int


@dataclass(frozen=True)
class RunStatus:
    """How a run stands.

    Attributes:
        state: "running", or how the run ended: "completed", "stopped", "diverged" or "failed".
        round: the newest committed round.
        rounds: the number of rounds of the whole run, or of versions if `counts` says so.
        counts: "rounds" or "versions".
        version: the newest version of the model; None if the run has ended and counts rounds.
        present: devices that are connected, of `population`.
        loss, accuracy: of the newest evaluation; None before the first one.
        epsilon: ε of `server.privacy` that the run has spent; None without it.
        bytes_up, bytes_down: of all updates and models that travelled so far.
        seconds_left: an estimate; None if it is too early to say, or if the run has ended.
        faults: faults that act at the moment, each with its targets.
        waits_for: the first devices for which the open round has waited for some seconds; empty if
            it does not wait.
        problems: containers of the run that do not run, a line each.
    """

    run: str
    state: str
    round: int
    rounds: int
    counts: str
    version: int | None
    present: int
    population: int
    open_round: OpenRound | None
    loss: float | None
    accuracy: float | None
    epsilon: float | None
    bytes_up: int
    bytes_down: int
    seconds_left: float | None
    faults: list[str]
    waits_for: list[str]
    problems: list[str]
    lines: list[str]

    def to_json(self) -> str:
        """One JSON object, without the lines for people."""
        values = asdict(self)
        del values["lines"]
        return json.dumps(values)


def status_of(folder: Path) -> RunStatus:
    """How the run in a folder stands.

    Raises:
        ConfigError: the folder is no run folder.
        Unreachable: the run has not ended, and no server of it answers. The message also names the
            containers of the run that do not run, or how a run goes on that was killed.
        LedgerError: the run has ended, and its ledger is lost or damaged.
    """
    folder = intact_folder(folder)
    progress = _replayed(folder)
    try:
        server = control.server_status(folder)
    except Unreachable as error:
        if progress.status is None:
            more = [*_missing_containers(folder), *_way_on(folder)]
            raise Unreachable("\n".join([str(error), *more])) from None
        return _ended(folder, progress)
    open_round = None
    if server.round:
        open_round = OpenRound(
            server.round, server.phase, server.called, server.answered, server.updates
        )
    faults = [f"{name} on {targets}" for (name, _), targets in progress.acting.items()]
    problems = _missing_containers(folder)
    lines = [
        f"run {server.run}, server incarnation {server.incarnation}",
        _committed(progress, server.committed_round, server.rounds, server.version),
        f"devices: {server.present} of {server.population} present",
    ]
    if open_round is not None:
        lines.append(
            f"round {open_round.number} is {open_round.phase}: {open_round.called} called, "
            f"{open_round.answered} answered, {open_round.updates} updates"
        )
    lines += _waiting(folder, progress)
    if facts := [*facts_of(progress), *time_left(progress)]:
        lines.append(", ".join(facts))
    if faults:
        lines.append(f"faults that act: {'; '.join(faults)}")
    return RunStatus(
        run=folder.name,
        state="running",
        round=server.committed_round,
        rounds=server.rounds,
        counts=progress.counts,
        version=server.version,
        present=server.present,
        population=server.population,
        open_round=open_round,
        seconds_left=progress.left_s,
        faults=faults,
        waits_for=list(progress.awaited),
        problems=problems,
        lines=[*lines, *problems],
        **_measured(progress),
    )


def _waiting(folder: Path, progress: RunProgress) -> list[str]:
    """That the open round waits, for whom, and what to do; empty if it does not wait."""
    if not progress.waiting:
        return []
    where, first = shown(folder), progress.awaited[0]
    if progress.acting:
        advice = f"`muster heal {where}` ends the faults that act"
    else:
        advice = (
            f"{where}/logs and `docker logs` may say why; `muster revoke {where} {first}` lets the "
            f"run go on without it"
        )
    return [f"{progress.waiting}: {advice}"]


def _committed(progress: RunProgress, round: int, of: int, version: int) -> str:
    if progress.counts_versions:
        return f"committed: version {version} of {of}, in {round} rounds"
    return f"committed: round {round} of {of}, version {version}"


def _measured(progress: RunProgress) -> dict[str, Any]:
    return {
        "loss": progress.loss,
        "accuracy": progress.accuracy,
        "epsilon": progress.epsilon,
        "bytes_up": progress.bytes_up,
        "bytes_down": progress.bytes_down,
    }


def _ended(folder: Path, progress: RunProgress) -> RunStatus:
    """The status of a run that is over: its result, and what is still to be done."""
    assert progress.status is not None
    where = Path(shown(folder))
    if (folder / "summary.json").is_file():
        lines = describe(read_summary(folder), where).splitlines()
    else:
        lines = [f"the run has ended; {ending_of(progress)}"]
        if (folder / COMPOSE).is_file() and is_free(folder):  # no supervisor is about to do it
            lines.append(
                f"Its containers are still there. `muster down {where}` removes them and writes "
                f"the summary and the report"
            )
    return RunStatus(
        run=folder.name,
        state=progress.status,
        round=progress.round,
        rounds=progress.rounds,
        counts=progress.counts,
        version=progress.version if progress.counts_versions else None,
        present=0,
        population=progress.population,
        open_round=None,
        seconds_left=None,
        faults=[],
        waits_for=[],
        problems=[],
        lines=lines,
        **_measured(progress),
    )


def watch(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every event of a run: the past ones from its journal, the others as they happen. The
    events of a run that has ended are all in its journal.

    Raises:
        ConfigError, Unreachable: as `status_of`, before the first event.
    """
    folder = intact_folder(folder)
    recent: deque[dict[str, Any]] = deque(maxlen=_OVERLAP)
    try:
        with control.watching(folder) as lines:
            for event in _as_they_happen(folder, lines):
                recent.append(event)
                yield event
    except Unreachable:  # the server may have ended before it could send all
        if _replayed(folder).status is None:
            raise
        yield from _unseen(folder, recent)


def _as_they_happen(folder: Path, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events in the journal, then those that the server sends."""
    tail = Tail(folder / JOURNAL)
    recent: deque[dict[str, Any]] = deque(maxlen=_OVERLAP)
    for event in journal_events(folder / JOURNAL):
        recent.append(event)
        yield event
    for event in live_events(lines, tail):
        # What happened while the journal was read is in the journal and in the stream.
        if event in recent:
            continue
        if event.get("role") != _SUPERVISOR:
            recent.clear()
        yield event


def _unseen(folder: Path, seen: Collection[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events in the journal that are newer than those that were seen."""
    of_server = [event for event in seen if event.get("role") not in (None, _SUPERVISOR)]
    events = journal_events(folder / JOURNAL)
    if of_server:
        events = dropwhile(lambda event: event != of_server[-1], events)
    return (event for event in events if event not in seen)


def _replayed(folder: Path) -> RunProgress:
    progress = RunProgress()
    for event in journal_events(folder / JOURNAL):
        progress.happen(event)
    progress.notices.clear()
    return progress


def _way_on(folder: Path) -> list[str]:
    """How a run goes on that has not ended and that no muster process runs any more."""
    if not is_free(folder):
        return []
    return [f"If it was killed, `{resume_command(Path(shown(folder)))}` continues it"]


def _missing_containers(folder: Path) -> list[str]:
    if not (folder / COMPOSE).is_file():
        return []
    from muster.emulator.launch.docker.missing import missing  # Docker's API takes 0.2 s to import

    return missing(folder)
