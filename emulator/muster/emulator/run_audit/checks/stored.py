"""Checks of what is stored of models: the versions, and the updates that a rule remembers."""

import math
import os
from pathlib import Path

import xxhash

from muster.common.tensors import WIRE
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog, sha256, sha256_of
from muster.server.account.store import model_name
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


CHECKS = (
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
