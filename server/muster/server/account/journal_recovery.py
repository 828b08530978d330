"""Finds the rounds and evaluations that are in the ledger but not in the journal.

The server commits a round before it writes the round's event to the journal. If the server is
killed in between, the next server writes the missing events, so that readers of the journal see
every round and every evaluation once.
"""

import mmap
from pathlib import Path

import orjson

from muster.common.events import Evaluated, Event, RoundCommitted
from muster.server.account.ledger import Ledger


def missing_events(journal: Path, ledger: Ledger) -> list[tuple[float, Event]]:
    """Return the rounds that were committed and the versions that were evaluated after the last
    ones in the journal, in the order in which they happened.

    Returns:
        For each event, the UNIX time at which the round was closed or the version evaluated.
    """
    rounds = ledger.rounds_after(newest(journal, RoundCommitted, "round"))
    evaluations = ledger.evaluations_after(newest(journal, Evaluated, "version"))
    events = [*((round.closed_at, round.committed()) for round in rounds), *evaluations]
    return sorted(events, key=lambda entry: entry[0])


def newest(journal: Path, event: type[Event], field: str) -> int:
    """Return a field of the last event of a kind; -1 if there is none."""
    if not journal.exists() or not journal.stat().st_size:
        return -1
    name = orjson.dumps({"event": event.name})[1:-1]
    with journal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
        at = lines.rfind(name)
        while at >= 0:
            begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
            try:
                return int(orjson.loads(lines[begin : end if end >= 0 else None])[field])
            except (ValueError, LookupError, TypeError):  # a power cut left only a part of the line
                at = lines.rfind(name, 0, begin)
    return -1
