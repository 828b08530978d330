"""The lives of devices: their newest calls, from the ledger."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from muster.common.errors import ConfigError
from muster.emulator.live.page_state import shown_metrics
from muster.emulator.records.ledger_file import read_ledger

MOST_CALLS = 200
_MOST_ROWS = 200_000

_CLIENTS = """
SELECT client, "group", examples, enrolled, sessions FROM clients
WHERE :client IS NULL OR client = :client ORDER BY position
"""
_ANSWERS = """
SELECT client, round, decision, reason, state, modelled_s FROM answers
WHERE (:client IS NULL OR client = :client)
AND round > (SELECT max(round) FROM rounds) - :rounds ORDER BY round
"""
_UPDATES = """
SELECT client, call_round, outcome, reason, staleness, weight, train_s, transfer_s, loss, bytes_up
FROM contributions WHERE (:client IS NULL OR client = :client)
AND rowid > (SELECT max(rowid) FROM contributions) - :rows AND outcome <> 'duplicate'
ORDER BY rowid
"""
_EVALUATIONS = """
SELECT client, max(version), loss, accuracy, metrics FROM device_evaluations
WHERE (:client IS NULL OR client = :client)
AND version > (SELECT max(version) FROM device_evaluations) - :rounds GROUP BY client
"""

Life = dict[str, Any]


def device_life(ledger: Path, client: str) -> Life:
    """What is known of a device, and its calls of the newest `MOST_CALLS` rounds, oldest first.

    Raises:
        ConfigError: the run has no such device.
        LedgerError: there is no ledger that can be read.
    """
    lives = device_lives(ledger, MOST_CALLS, client)
    if not lives:
        raise ConfigError(f"the run has no device {client!r:.100}")
    return lives[client]


def device_lives(ledger: Path, rounds: int, client: str | None = None) -> dict[str, Life]:
    """The lives of all devices, or of one, by name, each with its calls of the newest `rounds`.

    Raises:
        LedgerError: there is no ledger that can be read.
    """
    values = {"client": client, "rounds": rounds, "rows": _MOST_ROWS}
    with read_ledger(ledger) as opened:
        clients = opened.execute(_CLIENTS, values).fetchall()
        answers = _by_client(opened.execute(_ANSWERS, values))
        updates = _by_client(opened.execute(_UPDATES, values))
        evaluations = _by_client(opened.execute(_EVALUATIONS, values))
    names = ("client", "group", "examples", "enrolled", "sessions")
    return {
        row[0]: {
            **dict(zip(names, row, strict=True)),
            "evaluation": _evaluation(evaluations.get(row[0], [])),
            "calls": _calls(answers.get(row[0], []), updates.get(row[0], []), rounds),
        }
        for row in clients
    }


def _by_client(rows: Iterable[Sequence[Any]]) -> dict[str, list[Sequence[Any]]]:
    """The rest of the rows by their first column."""
    found: dict[str, list[Sequence[Any]]] = {}
    for client, *rest in rows:
        found.setdefault(client, []).append(rest)
    return found


def _evaluation(found: list[Sequence[Any]]) -> dict[str, Any] | None:
    """The newest evaluation of a model on the examples of a device; None if there is none."""
    if not found:
        return None
    version, loss, accuracy, metrics = found[0]
    return {
        "version": version, "loss": loss, "accuracy": accuracy, "metrics": shown_metrics(metrics),
    }  # fmt: skip


def _calls(
    answers: list[Sequence[Any]], updates: list[Sequence[Any]], most: int
) -> list[dict[str, Any]]:
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
    return [calls[round] for round in sorted(calls)][-most:]
