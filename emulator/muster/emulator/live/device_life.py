"""The life of one device: its newest calls, from the ledger."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from muster.common.errors import ConfigError
from muster.emulator.results.ledger_file import damaged, open_ledger

MOST_CALLS = 200
_MOST_ROWS = 200_000

_CLIENT = 'SELECT client, "group", examples, enrolled, sessions FROM clients WHERE client = ?'
_ANSWERS = """
SELECT round, decision, reason, state, modelled_s FROM answers
WHERE client = ? AND round > (SELECT max(round) FROM rounds) - ? ORDER BY round
"""
_UPDATES = """
SELECT call_round, outcome, reason, staleness, weight, train_s, transfer_s, loss, bytes_up
FROM contributions WHERE client = ?
AND rowid > (SELECT max(rowid) FROM contributions) - ? AND outcome <> 'duplicate' ORDER BY rowid
"""


def device_life(ledger: Path, client: str) -> dict[str, Any]:
    """What is known of a device, and its calls of the newest `MOST_CALLS` rounds, oldest first.

    Raises:
        ConfigError: the run has no such device.
        LedgerError: there is no ledger that can be read.
    """
    try:
        with closing(open_ledger(ledger)) as opened:
            row = opened.execute(_CLIENT, (client,)).fetchone()
            answers = opened.execute(_ANSWERS, (client, MOST_CALLS)).fetchall()
            updates = opened.execute(_UPDATES, (client, _MOST_ROWS)).fetchall()
    except sqlite3.DatabaseError as error:
        raise damaged(ledger, error) from error
    if row is None:
        raise ConfigError(f"the run has no device {client!r:.100}")
    names = ("client", "group", "examples", "enrolled", "sessions")
    return {**dict(zip(names, row, strict=True)), "calls": _calls(answers, updates)}


def _calls(answers: list[Any], updates: list[Any]) -> list[dict[str, Any]]:
    calls: dict[int, dict[str, Any]] = {}
    for round, decision, reason, state, modelled_s in answers:
        known: dict[str, Any] = orjson.loads(state) if state else {}
        calls[round] = {
            "round": round,
            "fate": {"accept": "no update", "decline": "declined", "abort": "gave up"}.get(
                decision, decision
            ),
            "reason": reason,
            "battery": known.get("battery"),
            "charging": known.get("charging"),
            "network": known.get("network"),
            "modelled_s": modelled_s,
        }
    first = min(calls, default=0)
    for call_round, outcome, reason, staleness, weight, train_s, transfer_s, loss, up in updates:
        if call_round < first:
            continue
        call = calls.setdefault(call_round, {"round": call_round})
        if outcome != "folded" and call.get("fate") in ("declined", "gave up"):
            continue  # the device's own word says more
        call.update(
            fate=outcome, reason=reason, staleness=staleness, weight=weight, train_s=train_s,
            transfer_s=transfer_s, loss=loss, bytes_up=up,
        )  # fmt: skip
    return [calls[round] for round in sorted(calls)][-MOST_CALLS:]
