"""Checks of the journal, of summary.json and of the files of models (the versions and the
remembered updates) against the ledger."""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import xxhash

from muster.common.errors import ConfigError
from muster.common.events import AppMeasured
from muster.common.tensors import WIRE
from muster.emulator.records.inputs import changes, recorded_inputs
from muster.emulator.records.summary import MODEL, SUMMARY, read_summary
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.result import CheckLog, sha256
from muster.server.account.store import model_name
from muster.server.updates.memory import MEMORY

_OF_ROUND = (
    "version",
    "outcome",
    "called",
    "accepted",
    "folded",
    "bytes_up",
    "bytes_down",
    "seconds",
    "epsilon",
)
"""The fields of the event `round_committed` that the table `rounds` has too."""

_OF_EVALUATION = ("round", "loss", "accuracy", "seconds")

_NEEDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "fault_planned": frozenset(),
        "fault_applied": frozenset(),
        "fault_observed": frozenset({"fault_applied"}),
        "fault_healed": frozenset({"fault_applied"}),
        "fault_verified": frozenset({"fault_observed", "fault_healed"}),
    }
)
"""The events of a fault, each with those that must come before it. A fault may be observed after it
was healed, because an update that arrives twice may be recorded with a later round."""


def check_inputs(evidence: Evidence, log: CheckLog) -> None:
    """The scenario and the code of the user's own are those with which the run began."""
    recorded = recorded_inputs(evidence.ledger)
    if not recorded:
        log.skip("the scenario and code of your own: the ledger does not record them")
        return
    try:
        changed = {change.name: change for change in changes(recorded, evidence.folder)}
    except ConfigError as error:
        log.skip(str(error))
        return
    for row in recorded:
        found = changed[row.name].found if row.name in changed else row.sha256
        log.compare(f"SHA-256 of {row.name}", row.sha256, found)
    for name in changed.keys() - {row.name for row in recorded}:
        log.compare(f"SHA-256 of {name}", changed[name].expected, changed[name].found)


def check_journal(evidence: Evidence, log: CheckLog) -> None:
    """The journal has every committed round and every evaluation once, with the same numbers."""
    rounds = {row["round"]: row for row in evidence.rows("SELECT * FROM rounds")}
    versions = {row["version"]: row for row in evidence.rows("SELECT * FROM evaluations")}
    told, evaluated, measured = Counter[int](), Counter[int](), Counter[int]()
    faults = dict[tuple[str, int], set[str]]()
    status: str | None = None
    for event in evidence.events():
        name = event.get("event")
        if name == "round_committed":
            told[event["round"]] += 1
            _compare_event(event, rounds.get(event["round"]), _OF_ROUND, log, event["round"])
        elif name == "evaluated":
            evaluated[event["version"]] += 1
            row = versions.get(event["version"])
            _compare_event(event, row, _OF_EVALUATION, log, event["round"])
        elif name == "app_measured":
            measured[event["round"]] += 1
            log.compare("metrics of the app in the journal",
                        evidence.estimates(event["round"]).get(AppMeasured.name), event["metrics"],
                        event["round"])  # fmt: skip
        elif name == "ended":
            status = event.get("status")
        elif name in _NEEDS:
            _check_fault(event, faults, log)
    recorded = evidence.one("SELECT status FROM run")
    ended = recorded is not None
    _compare_counts("the event round_committed of round", rounds.keys(), told, ended, log)
    _compare_counts("the event evaluated of version", versions.keys(), evaluated, ended, log)
    query = f"SELECT round FROM estimates WHERE name = '{AppMeasured.name}'"
    of_app = [row["round"] for row in evidence.rows(query)]
    _compare_counts("the event app_measured of round", of_app, measured, ended, log)
    if not ended:
        log.skip("the end of the journal: the run goes on, or its server was killed")
    else:
        log.compare("status of the run in the journal", recorded, status)


def _compare_event(
    event: dict[str, Any], row: Row | None, names: tuple[str, ...], log: CheckLog, round: int
) -> None:
    if row is None:
        return  # `_compare_counts` reports it
    for name in names:
        found = event.get(name)
        log.compare(f"{name} in the journal", row[name], found, round)


def _compare_counts(
    what: str, known: Iterable[int], told: Counter[int], ended: bool, log: CheckLog
) -> None:
    """A server that was killed may not have written its last events yet."""
    numbers = set(known)
    for number in sorted(numbers | set(told)):
        right = int(number in numbers)
        if told[number] or ended:
            log.compare(f"times that the journal has {what} {number}", right, told[number])


def _check_fault(
    event: dict[str, Any], faults: dict[tuple[str, int], set[str]], log: CheckLog
) -> None:
    """Every occurrence of a fault is applied before it is observed or healed, and both before it is
    verified; and none of this happens twice."""
    name, kind, round = str(event.get("fault")), str(event["event"]), event.get("round")
    before = faults.setdefault((name, int(event.get("number") or 0)), set())
    what = f"events of the fault {name!r} before {kind}"
    missing = ", ".join(sorted(_NEEDS[kind] - before))
    log.require(not missing, what, missing, "none of them", round)
    log.require(kind not in before, what, f"no {kind}", kind, round)
    before.add(kind)


def check_summary(evidence: Evidence, log: CheckLog) -> None:
    """summary.json has the sums of the ledger."""
    summary = read_summary(evidence.folder)
    if not summary:
        log.skip(f"{SUMMARY} is missing or not JSON")
        return
    one = evidence.one
    rounds, enrolled = (
        one("SELECT count(*) FROM rounds"),
        one("SELECT count(*) FROM clients WHERE enrolled_at IS NOT NULL"),
    )
    folded = one("SELECT count(*) FROM contributions WHERE outcome = 'folded'")
    expected: dict[str, Any] = {
        "run": one("SELECT id FROM run"),
        "rounds": rounds,
        "empty_rounds": one("SELECT count(*) FROM rounds WHERE outcome = 'empty'"),
        "population": one("SELECT population FROM run"),
        "enrolled": enrolled,
        "updates_folded": folded,
        "participation_rate": folded / (enrolled * rounds) if enrolled * rounds else None,
        "bytes_saved": one("SELECT coalesce(sum(bytes_saved), 0) FROM contributions"),
        "model_sha256": sha256_of(evidence.folder / MODEL),
    }
    if (status := one("SELECT status FROM run")) is not None:
        expected["status"] = status
    for way in ("up", "down"):
        total = f"SELECT coalesce(sum(bytes_{way}), 0) + (SELECT bytes_{way} FROM run) FROM rounds"
        expected[f"bytes_{way}"] = one(total)
    for key, value in expected.items():
        log.compare(f"{key} in {SUMMARY}", value, summary.get(key))
    seconds = [row["seconds"] for row in evidence.rows("SELECT seconds FROM rounds")]
    found = summary.get("seconds")
    close = isinstance(found, int | float) and math.isclose(found, math.fsum(seconds), rel_tol=1e-9)
    log.require(close, f"seconds in {SUMMARY}", f"{math.fsum(seconds)!r}", found)
    for outcome, count in dict(summary.get("outcomes", {})).items():
        right = one("SELECT count(*) FROM contributions WHERE outcome = ?", outcome)
        log.compare(f"outcomes.{outcome} in {SUMMARY}", right, count)
    _check_final(evidence, dict(summary.get("final", {})), log)


def _check_final(evidence: Evidence, final: dict[str, Any], log: CheckLog) -> None:
    last = next(evidence.rows("SELECT * FROM evaluations ORDER BY version DESC LIMIT 1"), None)
    if last is None:
        return
    for key in ("round", "version", "loss", "accuracy"):
        log.compare(f"final.{key} in {SUMMARY}", last[key], final.get(key))


def sha256_of(path: Path) -> str | None:
    """The SHA-256 of a file in hexadecimal; None if there is no such file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_PAGE = 4096


def check_versions(evidence: Evidence, log: CheckLog) -> None:
    """Every round that made a version has its row, and the kept ones have their content."""
    query = (
        "SELECT r.round, r.version, v.round AS made FROM rounds r LEFT JOIN versions v "
        "ON v.version = r.version WHERE r.outcome = 'aggregated' ORDER BY r.round"
    )
    for row in evidence.rows(query):
        log.compare(
            f"round that made version {row['version']}", row["round"], row["made"], row["round"]
        )
    for row in evidence.rows("SELECT * FROM versions WHERE kept ORDER BY version"):
        name = f"models/{model_name(row['version'])}"
        found = sha256(row["body"]) if row["body"] else sha256_of(evidence.folder / name)
        log.compare(f"SHA-256 of version {row['version']}", row["sha256"], found, row["round"])
    forgotten = evidence.one("SELECT count(*) FROM versions WHERE NOT kept")
    if forgotten:
        log.skip(f"the content of {forgotten} older versions: the server keeps only the newest")


def check_memory(evidence: Evidence, log: CheckLog) -> None:
    """The update that is remembered of every client is the newest of it that was folded."""
    known = {row["client"]: row for row in evidence.rows("SELECT * FROM memory")}
    if not known:
        log.skip("the aggregator remembers none")
        return
    newest = evidence.counts(
        "SELECT client, max(round) FROM contributions WHERE outcome = 'folded' GROUP BY client"
    )
    tensors = evidence.server_config["schema_"]
    parameters = sum(math.prod(tensor["shape"]) for tensor in tensors)
    slot_bytes = -(-parameters * WIRE.itemsize // _PAGE) * _PAGE
    path = evidence.folder / MEMORY
    for place, client in enumerate(evidence.enrolled):
        row = known.get(client)
        round = row["round"] if row is not None else None
        log.compare("round of the remembered update", newest.get(client), round, round, client)
        if row is None:
            continue
        begin = (2 * place + row["slot"]) * slot_bytes
        body = _read(path, begin, parameters * WIRE.itemsize)
        found = xxhash.xxh3_128_hexdigest(body)
        log.compare(f"checksum of its update in {MEMORY}", row["checksum"], found, round, client)


def _read(path: Path, begin: int, length: int) -> bytes:
    """Bytes of a file; fewer if it is shorter, none if it is missing."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return os.pread(file.fileno(), length, begin)
