"""Recovers the journal's events that a killed server did not write.

A round is committed to the ledger before the journal records it. If the server is killed in
between, or before it has written the journal's lines, the ledger has rounds or evaluations that the
journal lacks. Readers of the journal rely on every round and evaluation, so the next server records
the missing events.
"""

import mmap
from pathlib import Path
from typing import Any

import orjson

from muster.server.account.ledger import Ledger
from muster.server.rounds.closed_round import told

JournalEvent = tuple[str, dict[str, Any]]
"""The name of an event and its fields. The field `at` is the time, in UNIX seconds, when the round
was closed or the version was evaluated."""


def untold(journal: Path, ledger: Ledger) -> list[JournalEvent]:
    """Return the events of the ledger that the journal lacks, in the order in which they happened.

    They are the rounds committed and the versions evaluated after the last ones in the journal.
    """
    rounds = ledger.rounds_after(newest(journal, "round_committed", "round"))
    evaluations = ledger.evaluations_after(newest(journal, "evaluated", "version"))
    events = [
        *(("round_committed", told(round) | {"at": round.closed_at}) for round in rounds),
        *(("evaluated", fields) for fields in evaluations),
    ]
    return sorted(events, key=lambda event: event[1]["at"])


def newest(journal: Path, event: str, field: str) -> int:
    """Return an integer field of the journal's last event of that name; -1 if there is none."""
    if not journal.exists() or not journal.stat().st_size:
        return -1
    name = orjson.dumps({"event": event})[1:-1]
    with journal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
        at = lines.rfind(name)
        while at >= 0:
            begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
            try:
                return int(orjson.loads(lines[begin : end if end >= 0 else None])[field])
            except (ValueError, LookupError, TypeError):  # a power cut tore the line
                at = lines.rfind(name, 0, begin)
    return -1
