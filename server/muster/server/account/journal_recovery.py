"""What is in the ledger and not in the journal.

A round is made durable before it is told of, and a server may be killed in between, or before the
journal's lines are written. Who follows the journal is owed every round and evaluation all the
same: the next server tells of what the last one could not.
"""

import mmap
from pathlib import Path
from typing import Any

import orjson

from muster.server.account.ledger import Ledger
from muster.server.rounds.closed_round import told

Told = tuple[str, dict[str, Any]]
"""An event and its fields; `at` is when the round was closed or the version measured."""


def untold(journal: Path, ledger: Ledger) -> list[Told]:
    """Rounds committed and versions evaluated after the last ones that the journal has, in the
    order in which they happened."""
    rounds = ledger.rounds_after(newest(journal, "round_committed", "round"))
    evaluations = ledger.evaluations_after(newest(journal, "evaluated", "version"))
    events = [
        *(("round_committed", told(round) | {"at": round.closed_at}) for round in rounds),
        *(("evaluated", fields) for fields in evaluations),
    ]
    return sorted(events, key=lambda event: event[1]["at"])


def newest(journal: Path, event: str, field: str) -> int:
    """A field of the last event of that name; -1: there is none."""
    if not journal.exists() or not journal.stat().st_size:
        return -1
    name = orjson.dumps({"event": event})[1:-1]
    with journal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
        at = lines.rfind(name)
        while at >= 0:
            begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
            try:
                return int(orjson.loads(lines[begin : end if end >= 0 else None])[field])
            except (ValueError, LookupError, TypeError):  # a power cut tore it
                at = lines.rfind(name, 0, begin)
    return -1
