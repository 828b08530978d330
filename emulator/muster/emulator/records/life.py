"""The life record of a run, from its ledger and its journal."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from muster.common.clock_kinds import is_lockstep
from muster.common.errors import ConfigError
from muster.common.life_record import LifeDevice, LifeRecord, LifeRound, LifeRow, life_record
from muster.common.toml import parse_toml
from muster.emulator.records.fault_windows import APPLIED, HEALED
from muster.emulator.records.ledger_file import read_ledger
from muster.emulator.run_folder.folder import JOURNAL, LEDGER, SCENARIO
from muster.emulator.run_folder.journal_tail import journal_events
from muster.server.rounds.steps import step_at

_RANKS = {"folded": 0, "refused": 1, "late": 1, "dropped": 1, "duplicate": 2}
"""Of several updates for a call, the one that counted is recorded, and never a copy of another."""


def life_of_run(folder: Path) -> LifeRecord:
    """The life record of the run in a folder.

    Raises:
        LedgerError: the ledger is missing or damaged.
        ConfigError: its scenario cannot be read, or it has no round.
    """
    path = folder / SCENARIO
    try:
        scenario = parse_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected the scenario of the run, found {error}") from None
    with read_ledger(folder / LEDGER) as ledger:
        ledger.row_factory = sqlite3.Row
        return _record(ledger, scenario, folder)


def _record(ledger: sqlite3.Connection, scenario: Mapping[str, Any], folder: Path) -> LifeRecord:
    clock = scenario.get("clock", {})
    kind, step_s = str(clock.get("kind", "rounds")), float(clock.get("round_s", 60.0))
    run = ledger.execute("SELECT id, began_at FROM run").fetchone()
    rounds = ledger.execute("SELECT * FROM rounds ORDER BY round").fetchall()
    if not rounds:
        raise ConfigError(f"run {run['id']} has no round that could be recorded; let it go on")
    faults = _faults(folder, len(rounds))
    seconds = _measured_s(run["began_at"], float(clock.get("scale", 1.0)))
    if is_lockstep(kind):
        seconds = _unknown
    updates = _updates(ledger)
    opened = {row["round"]: row["scenario_s"] for row in rounds}
    query = "SELECT a.* FROM answers a JOIN clients k USING (client) ORDER BY a.round, k.position"
    rows = []
    for answer in ledger.execute(query):
        key = answer["round"], answer["client"]
        if answer["round"] not in opened:
            continue
        row = LifeRow(
            *key,
            answer["decision"],
            answer["reason"],
            called_s=opened[answer["round"]],
            answered_s=seconds(answer["at"]),
            modelled_s=answer["modelled_s"],
            state=answer["state"],
            x=answer["x"],
            x_age_s=answer["x_age_s"],
            faults=faults.get(key),
        )
        if (update := updates.get(key)) is not None:
            row = row._replace(
                reason=row.reason or update["reason"],
                base_version=update["base_version"],
                outcome=update["outcome"],
                counted=update["round"] if update["outcome"] == "folded" else None,
                staleness=update["staleness"],
                ended_s=seconds(update["at"]),
                train_s=update["train_s"],
                transfer_s=update["transfer_s"],
                examples=update["examples"] if update["steps"] else 0,
                bytes_up=update["bytes_up"],
                bytes_down=update["bytes_down"],
            )
        rows.append(row)
    devices = ledger.execute('SELECT client, "group" FROM clients ORDER BY position')
    return life_record(
        f"run {run['id']} of the scenario {scenario.get('name')}",
        kind,
        [LifeDevice(client=client, group=group) for client, group in devices],
        [
            LifeRound(
                opened_s=row["scenario_s"] or 0.0,
                ended_s=(seconds(row["closed_at"]) if row["next_s"] is None else row["next_s"])
                or 0.0,
                step=step_at(row["scenario_s"] or 0.0, step_s),
                version=row["version"],
            )
            for row in rounds
        ],
        rows,
        _unanswered(ledger, folder),
    )


def _unanswered(ledger: sqlite3.Connection, folder: Path) -> int:
    """The number of calls of servers that were killed, of which no answer was in the ledger then.

    The ledger has an answer when what follows from it is decided, and the calls of a round when it
    is committed; the journal has them when it is opened.
    """
    query = "SELECT count(*) FROM answers WHERE decision != 'absent' AND at < ?"
    found, called, answered = 0, 0, 0
    for event in journal_events(folder / JOURNAL):
        if event.get("event") == "round_opened":
            called += event["called"]
        elif event.get("event") == "server_started" and event["incarnation"] > 1:
            (until_now,) = ledger.execute(query, (event["at"],)).fetchone()
            found += max(0, called - (until_now - answered))
            called, answered = 0, until_now
    return found


def _updates(ledger: sqlite3.Connection) -> dict[tuple[int, str], sqlite3.Row]:
    """The update for every call, by round and client of the call."""
    found = dict[tuple[int, str], sqlite3.Row]()
    for row in ledger.execute("SELECT * FROM contributions ORDER BY rowid"):
        key = row["call_round"], row["client"]
        if key not in found or _RANKS[row["outcome"]] <= _RANKS[found[key]["outcome"]]:
            found[key] = row
    return found


def _measured_s(began_at: float | None, scale: float) -> Callable[[float], float | None]:
    """Converts UNIX seconds into scenario seconds."""

    def seconds(at: float) -> float | None:
        return None if began_at is None else (at - began_at) * scale

    return seconds


def _unknown(at: float) -> float | None:
    """In lockstep, the moment at which something came says nothing about the scenario."""
    return None


def _faults(folder: Path, last: int) -> Mapping[tuple[int, str], str]:
    """The names of the faults that struck each device, by round and client, as the journal tells.

    Args:
        last: the newest round.
    """
    names, open = defaultdict[tuple[int, str], set[str]](set), dict[tuple[str, str], int]()

    def enter(fault: str, target: str, end: int) -> None:
        for round in range(open.pop((fault, target), end), end):
            names[round, target].add(fault)

    for event in journal_events(folder / JOURNAL):
        if event.get("event") not in (APPLIED, HEALED):
            continue
        fault, round = event["fault"], event["round"] or 1
        for target in event["targets"]:
            if event["event"] == APPLIED:
                open.setdefault((fault, target), round)
            else:
                enter(fault, target, max(round, open.get((fault, target), round) + 1))
    for fault, target in list(open):
        enter(fault, target, last + 1)
    return {key: " ".join(sorted(of_call)) for key, of_call in names.items()}
