"""Reads the traces of faults from the ledger of a run, also while it is running.

The traces of a round are those that were entered with its commit, whenever they are read, so that
what follows from them depends on the run alone. The row of the round says up to which row of
`contributions` that is.
"""

import sqlite3
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from muster.common.faults import LedgerTrace
from muster.emulator.records.ledger_file import read_ledger
from muster.emulator.run_folder.journal_tail import journal_events

_USUAL = 20
"""Newest answers of a device from which its usual time follows."""

_MOST_ANSWERS = 100_000
"""Most answers in which usual times are looked for: about 0.2 s of reading."""

_COUNT_OF = "SELECT contributions FROM rounds WHERE"
_ALL = 2**63 - 1

_REPEATED = frozenset({("duplicate", ""), ("late", "round closed")})
"""Outcome and reason of an update that came once more."""


class CallTrace(NamedTuple):
    """The trace of one call of a device.

    Attributes:
        round: the round of the call.
    """

    round: int
    client: str
    trace: LedgerTrace


class LedgerTraces:
    """The traces of faults in the ledger `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entered(self, round: int | None, clients: Collection[str]) -> list[CallTrace]:
        """The traces of these devices' calls that were entered with the commit of a round, in the
        order of the rounds of the calls.

        Args:
            round: None: what was entered after the commit of the newest round.
        """
        found: dict[tuple[int, str], LedgerTrace] = {}
        with read_ledger(self._path) as ledger:
            for number, client, decision, reason, state, modelled_s in _answers(ledger, round):
                if client in clients:
                    seen = orjson.loads(state) if state else {}
                    trace = LedgerTrace(decision, reason or "", seen, modelled_s)
                    found[number, client] = trace
            for client, number, outcome, reason in _contributions(ledger, round):
                if client in clients:
                    key, row = (number, client), (outcome, reason or "")
                    again = row in _REPEATED and _has_counted(ledger, number, client)
                    found[key] = _with_update(found.get(key, LedgerTrace()), row, again)
        return [CallTrace(*key, trace) for key, trace in sorted(found.items(), key=lambda i: i[0])]

    def usual_s(self, clients: Iterable[str], before: int) -> Mapping[str, float]:
        """The median of each device's modelled seconds in its newest rounds before `before`. A
        device that has not worked for very long has none."""
        found: dict[str, list[float]] = {client: [] for client in clients}
        missing = len(found)
        with read_ledger(self._path) as ledger:
            for client, modelled_s in ledger.execute(
                "SELECT client, CASE decision WHEN 'accept' THEN modelled_s END FROM answers "
                "WHERE round < ? ORDER BY round DESC LIMIT ?",
                (before, _MOST_ANSWERS),
            ):
                values = found.get(client)
                if modelled_s is None or values is None or len(values) == _USUAL:
                    continue
                values.append(modelled_s)
                missing -= len(values) == _USUAL
                if not missing:
                    break
        return {client: statistics.median(values) for client, values in found.items() if values}


def _answers(ledger: sqlite3.Connection, round: int | None) -> Iterable[tuple[Any, ...]]:
    """The answers that were entered with the commit of a round."""
    if round is None:  # answers are only entered with a commit
        return ()
    columns = "SELECT round, client, decision, reason, state, modelled_s FROM answers"
    return ledger.execute(
        f"{columns} WHERE round = ? AND entered IS NULL UNION ALL {columns} WHERE entered = ?",
        (round, round),
    )


def _contributions(ledger: sqlite3.Connection, round: int | None) -> Iterable[tuple[Any, ...]]:
    """The contributions that were entered after the commit before, up to that of a round."""
    newest = ledger.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0]
    before = (newest if round is None else round - 1,)
    first = ledger.execute(f"{_COUNT_OF} round = ?", before).fetchone()
    last = ledger.execute(f"{_COUNT_OF} round = ?", (round,)).fetchone()
    return ledger.execute(
        "SELECT client, call_round, outcome, reason FROM contributions "
        "WHERE rowid > ? AND rowid <= ? ORDER BY rowid",
        ((first or (0,))[0], (last or (_ALL,))[0]),
    )


def _has_counted(ledger: sqlite3.Connection, round: int, client: str) -> bool:
    """Whether an update for this call has counted. The index `counted_once` answers this."""
    counted = "SELECT 1 FROM contributions WHERE call_round = ? AND client = ?"
    return (
        ledger.execute(f"{counted} AND outcome = 'folded'", (round, client)).fetchone() is not None
    )


def _with_update(trace: LedgerTrace, row: tuple[str, str], again: bool) -> LedgerTrace:
    """The trace with one more update."""
    # A device whose answer came with its update has accepted.
    trace = trace._replace(decision=trace.decision or "accept")
    if again:
        trace = trace._replace(earlier=[*trace.earlier, row])
    if not again or row[0] == "duplicate":
        trace = trace._replace(updates=[*trace.updates, row])
    return trace


_FOLLOWED = ("round_opened", "round_committed", "ended", "fault_")


def journal_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal from which the course of faults follows, in order."""
    return journal_events(path, *(f'"event":"{name}' for name in _FOLLOWED))


def recorded_events(path: Path) -> set[tuple[str, str, int]]:
    """(event, fault, number) of all events of faults in a journal; number 0 if they have none."""
    return {
        (line["event"], line["fault"], line.get("number", 0))
        for line in journal_lines(path)
        if line["event"].startswith("fault_")
    }
