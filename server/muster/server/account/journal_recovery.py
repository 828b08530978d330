"""Finds the rounds and evaluations that are in the ledger but not in the journal.

The server commits a round before it writes the round's event to the journal. If the server is
killed in between, the next server writes the missing events, so that readers of the journal see
every round and every evaluation once.
"""

import mmap
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from muster.common.events import AppMeasured, Evaluated, Event, RoundCommitted
from muster.common.sealed_lines import object_in
from muster.server.account.rows import RoundRow

if TYPE_CHECKING:
    from muster.server.account.ledger import Ledger


def missing_events(journal: Path, ledger: "Ledger") -> list[tuple[float, Event]]:
    """Return the committed rounds and the evaluated versions that the journal lacks, in the order
    in which they happened. Usually they are the last ones, but a power cut may have left a hole.

    Returns:
        For each event, the UNIX time at which the round was closed or the version evaluated.
    """
    fields = {RoundCommitted: "round", Evaluated: "version", AppMeasured: "round"}
    told, evaluated, measured = numbers(journal, fields).values()
    rounds = [row for row in ledger.rounds_after(_whole(told, 1)) if row.round not in told]
    evaluations = [
        (at, event)
        for at, event in ledger.evaluations_after(_whole(evaluated, 0))
        if event.version not in evaluated
    ]
    counted = ledger.staleness_after(rounds[0].round - 1) if rounds else {}
    committed = [(row.closed_at, row.committed(counted.get(row.round, {}))) for row in rounds]
    events = [*_app_metrics(ledger, rounds, measured), *committed, *evaluations]
    return sorted(events, key=lambda entry: entry[0])


def _app_metrics(
    ledger: "Ledger", rounds: Sequence[RoundRow], told: Set[int]
) -> list[tuple[float, Event]]:
    """The metrics of an app that were not told before these rounds, which the journal lacks too.
    Those of the initial model come before round 1."""
    if not rounds:
        return []
    closed = {row.round: row.closed_at for row in rounds}
    closed |= {0: closed[1]} if 1 in closed else {}
    return [
        (closed[row.round], row.app_measured())
        for row in ledger.app_measured_from(min(closed))
        if row.round in closed and row.round not in told
    ]


def _whole(numbers: Set[int], first: int) -> int:
    """The last number of those that follow `first` without a gap; `first` − 1 if it is missing."""
    last = first - 1
    while last + 1 in numbers:
        last += 1
    return last


def numbers(journal: Path, fields: Mapping[type[Event], str]) -> dict[type[Event], set[int]]:
    """Return a field of all events of some kinds, by kind, in one pass through the journal. Lines
    that are torn or damaged are left out."""
    found: dict[type[Event], set[int]] = {event: set() for event in fields}
    begins = {_begin(event): event for event in fields}
    if not journal.exists():
        return found
    prefixes = tuple(begins)
    with journal.open("rb") as lines:
        for line in lines:
            if line.startswith(prefixes):
                event = begins[line[: line.index(b",") + 1]]
                with suppress(ValueError, LookupError, TypeError):  # a part of a line, or damaged
                    found[event].add(int((object_in(line.rstrip(b"\n")) or {})[fields[event]]))
    return found


def newest(journal: Path, event: type[Event], field: str) -> int:
    """Return a field of the last event of a kind that is whole; -1 if there is none."""
    if not journal.exists() or not journal.stat().st_size:
        return -1
    with journal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
        at = lines.rfind(_begin(event))
        while at >= 0:
            end = lines.find(b"\n", at)
            with suppress(ValueError, LookupError, TypeError):
                return int((object_in(lines[at : end if end >= 0 else None]) or {})[field])
            at = lines.rfind(_begin(event), 0, at)
    return -1


def _begin(event: type[Event]) -> bytes:
    """The first bytes of the line of an event."""
    return b'{"event":%b,' % orjson.dumps(event.name)
