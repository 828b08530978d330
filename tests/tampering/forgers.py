"""What a forger repairs after a change, so that the files of a run agree with each other again."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from muster.common.sealed_lines import object_in, sealed
from muster.emulator.fleet.scenario_faults import ScenarioFaults, write_timeline
from muster.emulator.records.account import Account
from muster.emulator.records.inputs import inputs_of, recorded_inputs
from muster.emulator.records.summary import read_summary, summarise, write_summary
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.promises import (
    OF_THE_MACHINE,
    planned_files,
    promised_config,
)
from muster.server.account.page_sums import PageSums, sums_path

_SUMS = """
    UPDATE rounds SET folded = (
        SELECT count(*) FROM contributions c WHERE c.round = rounds.round AND outcome = 'folded'
    );
    UPDATE rounds SET accepted = (
        SELECT count(*) FROM answers a WHERE a.round = rounds.round
        AND decision IN ('accept', 'abort')
    );
    UPDATE rounds SET (weight_sum, weight_max, effective_size) = (
        SELECT sum(weight), max(weight), sum(weight) * sum(weight) / sum(weight * weight)
        FROM contributions c WHERE c.round = rounds.round
    ) WHERE weight_sum IS NOT NULL;
"""
"""Statements that derive columns of `rounds` from the rows of other tables."""


@contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """The ledger of a run, whose page sums are right again when the context ends."""
    path = folder / "ledger.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as ledger:
        ledger.row_factory = sqlite3.Row
        yield ledger
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if sums_path(path).exists():
        PageSums(path).record(())


def journal(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "journal.jsonl").read_bytes().splitlines()
    return [event for line in lines if (event := object_in(line))]


def write_journal(folder: Path, events: list[dict[str, Any]]) -> None:
    lines = [sealed(json.dumps(event, separators=(",", ":")).encode()) for event in events]
    (folder / "journal.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def repair_sums(folder: Path) -> None:
    """Let the rounds have the sums of their rows."""
    with opened(folder) as ledger:
        ledger.executescript(_SUMS)


def repair_journal(folder: Path) -> None:
    """Let the events of rounds, evaluations and answers have the numbers of the ledger, and leave
    out those of rows that are not there any more."""
    with opened(folder) as ledger:
        rounds = {row["round"]: dict(row) for row in ledger.execute("SELECT * FROM rounds")}
        measured = {r["version"]: dict(r) for r in ledger.execute("SELECT * FROM evaluations")}
        answers = {tuple(row) for row in ledger.execute("SELECT round, client FROM answers")}
        sent = {tuple(r) for r in ledger.execute("SELECT call_round, client FROM contributions")}
        ages = Counter(
            tuple(row)
            for row in ledger.execute(
                "SELECT round, staleness FROM contributions WHERE outcome = 'folded'"
            )
        )
        run = ledger.execute("SELECT * FROM run").fetchone()
    kept = []
    for event in journal(folder):
        row: dict[str, Any] | None = {}
        if event["event"] in ("round_committed", "round_opened"):
            row = rounds.get(event["round"])
        elif event["event"] == "evaluated":
            row = measured.get(event["version"])
        elif event["event"] == "answered":
            row = {} if (event["round"], event["client"]) in answers else None
        elif event["event"] in ("received", "late", "refused", "duplicate"):
            row = {} if (event["round"], event["client"]) in sent else None
        elif event["event"] == "ended" and run is not None:
            row = dict(run)
        if row is None:
            continue
        event |= {name: row[name] for name in event.keys() & row.keys()}
        if event["event"] == "round_committed":
            of_round = {a: n for (round, a), n in ages.items() if round == event["round"]}
            event["staleness"] = {str(a): of_round[a] for a in sorted(of_round)}
        kept.append(event)
    write_journal(folder, kept)


def repair_summary(folder: Path) -> None:
    """Let summary.json have the sums of the ledger."""
    if not read_summary(folder):
        return
    with Account(folder) as account:
        write_summary(folder, summarise(account))


def repair_inputs(folder: Path) -> None:
    """Let everything that follows from the scenario before the run follow from it as it is."""
    rows = inputs_of(folder)
    with opened(folder) as ledger:
        for row in rows:
            ledger.execute("UPDATE inputs SET sha256 = ? WHERE name = ?", (row.sha256, row.name))
        recorded = recorded_inputs(ledger)
    with closing(Evidence.of(folder).ledger) as ledger:
        evidence = Evidence(folder, ledger)
        config = evidence.config
        assert not isinstance(config, str)
        made = promised_config(evidence, config)
        if isinstance(made, str) or isinstance(evidence.planned, str):
            return
        own = config.model_dump(include=set(OF_THE_MACHINE))
        own["inputs"] = [row._asdict() for row in recorded]
        text = made.model_validate(made.model_dump() | own).to_json()
        planned_files(evidence, made, folder)
        write_timeline(folder, ScenarioFaults.of(evidence.planned, evidence.residents).timeline)
    (folder / "setup/server.json").write_text(text)


def repair_all(folder: Path) -> None:
    """Repair all that follows from the rows of the ledger."""
    repair_sums(folder)
    repair_journal(folder)
    repair_summary(folder)
