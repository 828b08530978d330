"""Checks of what is stored of models: the versions, and the updates that a rule remembers."""

import math
import os
from pathlib import Path

import xxhash

from muster.common.tensors import WIRE
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.result import CheckLog, sha256, sha256_of
from muster.emulator.run_audit.vectors import INITIAL, initial_of
from muster.server.account.round_files import model_name, state_name
from muster.server.updates.kept import SUMS, UPDATES
from muster.server.updates.memory import MEMORY

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
    _check_rows(evidence, log)
    for row in evidence.rows("SELECT * FROM versions WHERE kept ORDER BY version"):
        name = f"models/{model_name(row['version'])}"
        found = sha256(row["body"]) if row["body"] else sha256_of(evidence.folder / name)
        log.compare(f"SHA-256 of version {row['version']}", row["sha256"], found, row["round"])
    forgotten = evidence.one("SELECT count(*) FROM versions WHERE NOT kept")
    if forgotten:
        log.skip(f"the content of {forgotten} older versions: the server keeps only the newest")


def _check_rows(evidence: Evidence, log: CheckLog) -> None:
    """Compare the rows of all versions: their rounds and lengths, and which of them are kept."""
    made = {0: 0} | {
        row["version"]: round
        for round, row in evidence.committed.items()
        if row["outcome"] == "aggregated"
    }
    initial = evidence.folder / INITIAL
    size = initial.stat().st_size if initial.is_file() else None
    newest, ended = max(made.values()), evidence.status == "completed"
    for row in evidence.rows("SELECT * FROM versions ORDER BY version"):
        version, round = row["version"], row["round"]
        log.compare(f"round of version {version}", made.pop(version, None), round)
        if size is not None:
            log.compare(f"bytes of version {version}", size, row["bytes"], round)
        if version == 0 and size is not None:
            log.compare("SHA-256 of version 0", sha256_of(initial), row["sha256"])
        if ended:
            log.compare(f"whether version {version} is kept", int(round == newest), row["kept"])
        if not row["kept"]:
            log.compare(f"body of version {version}, which is not kept", None, row["body"])
    for version in made if evidence.rounds_begun else ():
        log.require(False, f"row of version {version}", "one", "none")
    _check_files(evidence, log)


def _check_files(evidence: Evidence, log: CheckLog) -> None:
    """Compare the files of versions with the rows that name them."""
    query = "SELECT version FROM versions WHERE kept AND body IS NULL"
    named = {model_name(version) for (version,) in evidence.rows(query)}
    query = "SELECT version FROM aggregator_state WHERE body IS NULL"
    named |= {state_name(version) for (version,) in evidence.rows(query)}
    found = {path.name for path in (evidence.folder / "models").glob("*.safetensors")}
    for name in sorted(named - found):
        log.require(False, f"models/{name}", "the file that the ledger names", "none")
    for name in sorted(found - named) if evidence.status is not None else ():
        log.require(False, f"models/{name}", "none, by the ledger", "a file")


def check_states(evidence: Evidence, log: CheckLog) -> None:
    """The states of the rule belong to kept versions, and have their content."""
    query = "SELECT version FROM versions WHERE kept"
    kept = {version for (version,) in evidence.rows(query)}
    states = list(evidence.rows("SELECT * FROM aggregator_state ORDER BY version"))
    for row in states:
        what = f"state of the rule at version {row['version']}"
        log.require(row["version"] in kept, what, "one of a kept version", row["version"])
        path = evidence.folder / "models" / state_name(row["version"])
        content = row["body"] or (path.read_bytes() if path.is_file() else b"")
        log.compare(f"SHA-256 of the {what}", sha256(content), row["sha256"])
        log.compare(f"bytes of the {what}", len(content), row["bytes"])
    if states or _begins_with_state(evidence):
        for version in sorted(kept - {row["version"] for row in states}):
            log.require(False, f"state of the rule at version {version}", "one", "none")
    elif not states:
        log.skip("the rule keeps no state")


def _begins_with_state(evidence: Evidence) -> bool:
    """Whether the rule has a state from the start on."""
    config = evidence.config
    if isinstance(config, str) or config.server.aggregator.runs_strategy():
        return False
    return bool(config.server.aggregator.initial_state(initial_of(evidence, config)))


def check_empty(evidence: Evidence, log: CheckLog) -> None:
    """What the run has no use for is empty."""
    log.compare(
        "rows of faults, which nothing writes", 0, evidence.one("SELECT count(*) FROM faults")
    )
    query = "SELECT DISTINCT round FROM estimates WHERE round > 0 ORDER BY round"
    for (round,) in evidence.rows(query):
        log.require(round in evidence.committed, "round of an estimate", "a committed one", round)
    kept = {UPDATES: evidence.server.get("keep_updates"),
            SUMS: evidence.secure is not None and evidence.secure.keep_sums}  # fmt: skip
    for folder in (folder for folder, used in kept.items() if not used):
        found = sorted(path.name for path in (evidence.folder / folder).glob("*"))
        log.compare(f"files in {folder}, which the scenario does not keep", [], found)
    if isinstance(evidence.planned, str):
        return
    groups = evidence.planned.groups
    shared = evidence.outlives_round and any(group.shaped for group in groups)
    names = {resident.client for resident in evidence.residents if resident.enrolled}
    for row in evidence.rows("SELECT * FROM shared_work"):
        right = shared and row["client"] in names
        log.require(right, "work over shared links", "none", row["round"], device=row["client"])
        _check_work(evidence, row, log)


def _check_work(evidence: Evidence, row: Row, log: CheckLog) -> None:
    """Compare how far the work of a device over a shared link is with its newest call. A device
    may give up before it has any work."""
    query = "SELECT max(round) FROM answers WHERE client = ? AND decision IN ({})"
    refused = "SELECT call_round FROM contributions WHERE client = ? AND outcome = 'refused'"
    newest, least = (
        evidence.one(query.format(decisions), row["client"])
        for decisions in ("'accept', 'abort'", "'accept'")
    )
    at = row["round"], row["client"]
    if newest not in [round for (round,) in evidence.rows(refused, row["client"])]:
        right = newest is not None and (least or 1) <= row["round"] <= newest
        log.require(right, "round of its work over a shared link",
                    f"from {least} to {newest}", row["round"], *at)  # fmt: skip
    for name, most in (("stage", 5), ("train_s", math.inf), ("at_s", math.inf)):
        right = 0 <= row[name] <= most
        log.require(right, f"{name} of its work", f"from 0 to {most}", row[name], *at)
    if row["stage"] == 5:
        log.compare("bits left of work that has ended", 0.0, row["left_bits"], *at)


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
    for client in sorted(known.keys() - set(evidence.enrolled)):
        log.require(False, "remembered update", "one of a device that may train", client)
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


CHECKS = (
    Check(
        "states of the rule",
        "Every kept version has one if the rule keeps a state, with its SHA-256.",
        check_states,
    ),
    Check(
        "what stays empty",
        "There is no work over shared links without any, nothing in the table `faults`, and no "
        "kept updates or sums that the scenario does not ask for.",
        check_empty,
    ),
    Check(
        "stored versions",
        "Every version has its round, and the kept ones have their SHA-256.",
        check_versions,
    ),
    Check(
        "remembered updates",
        "For `fedvarp`, `mifa` and the aggregators for rational devices: the remembered "
        "update of every client is its newest one, and `memory.bin` has it.",
        check_memory,
    ),
)
