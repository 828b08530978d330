"""Checks of the models: their files, the remembered updates, and every version made again."""

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from muster.common.compression import CODECS, Codec, pread_of
from muster.common.errors import MusterError
from muster.common.own_code import use
from muster.common.schedules import SCHEDULES
from muster.common.seeds import BoolArray
from muster.common.tensors import WIRE, Vector, safetensors_header, schema_of
from muster.emulator.records.summary import MODEL
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.formulas import RoundContext
from muster.emulator.run_audit.next_model import CountedUpdate, ModelChain, RuleForm
from muster.emulator.run_audit.record_checks import sha256_of
from muster.emulator.run_audit.result import CheckLog
from muster.emulator.run_audit.vector_formulas import VECTOR_FORMULAS
from muster.emulator.run_audit.weights import clips, compare_weights
from muster.server.account.store import model_name
from muster.server.aggregators import (
    AGGREGATORS,
    BUILT_IN,
    Aggregator,
    Combining,
    Recalling,
    Remembering,
    Stepping,
)
from muster.server.updates.kept import UPDATES, kept_name
from muster.server.updates.memory import MEMORY

_INITIAL = "setup/initial.safetensors"
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
        found = _sha256(row["body"]) if row["body"] else sha256_of(evidence.folder / name)
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
    parameters = _parameters(evidence)
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


def check_aggregation(evidence: Evidence, log: CheckLog) -> None:
    """Every version, made again from the kept updates, has the SHA-256 of the ledger."""
    if not evidence.server.get("keep_updates"):
        log.skip("the scenario does not set server.keep_updates")
        return
    rule = _rule_of(evidence)
    if isinstance(rule, str):
        log.skip(rule)
        return
    form = RuleForm(
        change=_change_of(rule),
        parameters=rule.weighs == "parameters",
        mixes=rule.mixes,
        settings=evidence.rule,
        carries=evidence.carries,
        enrolled=len(evidence.enrolled),
    )
    if (unknown := form.unknown()) is not None:
        log.skip(unknown)
        return
    _make_again(evidence, log, form, rule)


def _change_of(rule: Aggregator) -> str:
    """How the formulas call the way in which the rule changes the model."""
    bases = {Stepping: "step", Combining: "combination", Remembering: "memory", Recalling: "recall"}
    return next((change for base, change in bases.items() if isinstance(rule, base)), "sum")


def _make_again(evidence: Evidence, log: CheckLog, form: RuleForm, rule: Aggregator) -> None:
    names, shapes, initial = _initial(evidence)
    header = safetensors_header(schema_of(dict(zip(names, shapes, strict=True))))
    frozen = _frozen(evidence)
    chain = ModelChain(form, {0: initial}, frozen=frozen)
    log.compare("SHA-256 of version 0", _sha_of(evidence, 0), _sha256(header, initial.tobytes()))
    codecs, context = _codecs(evidence), RoundContext.of(evidence)
    formula = None if clips(evidence) else VECTOR_FORMULAS.get(evidence.rule["kind"])
    versions, total = 0, np.zeros(len(initial))
    oldest = int(evidence.mode.get("max_staleness") or 0)
    for row in evidence.rows("SELECT * FROM rounds WHERE outcome = 'aggregated' ORDER BY round"):
        entries = len(initial) * (2 if rule.control else 1)
        updates = list(_updates(evidence, log, row["round"], codecs, entries))
        if len(updates) != row["folded"]:
            return  # the reason is in the log; nothing after it can be made
        if formula is not None:
            folded = evidence.folded(row["round"])
            derived = formula(context, folded, [update.vector for update in updates])
            compare_weights(derived, folded, row, log)
        alpha = evidence.estimates(row["round"]).get("alpha", {})
        steps = _scale(evidence, row["round"]), chain.newest - oldest
        made = chain.advance(updates, row["normaliser"], *steps, alpha)
        found = _sha256(header, made.tobytes())
        expected = _sha_of(evidence, row["version"])
        log.compare(f"SHA-256 of version {row['version']}, made again from its updates", found,
                    expected, row["round"])  # fmt: skip
        if found != expected:
            return  # every later version would differ too
        versions, total = versions + 1, total + made
    path = evidence.folder / MODEL
    if path.is_file() and evidence.rule.get("offer") == "average" and versions:
        offered = (total / versions).astype(np.float32)
        if frozen is not None:
            offered[frozen] = initial[frozen]
        log.compare(f"SHA-256 of {MODEL}, the average of all versions",
                    _sha256(header, offered.tobytes()), sha256_of(path))  # fmt: skip


def check_model(evidence: Evidence, log: CheckLog) -> None:
    """The model of the run is its newest version."""
    path = evidence.folder / MODEL
    if not path.is_file():
        log.skip(f"{MODEL}: the run has not ended")
    elif evidence.rule["kind"] not in BUILT_IN:
        log.skip(f"{MODEL}: the aggregator is not muster's own, and may offer another model")
    elif evidence.rule.get("offer", "last") == "average":
        log.skip(f"{MODEL}: it is the average of all versions, not the newest one")
    else:
        newest = evidence.one("SELECT sha256 FROM versions ORDER BY version DESC LIMIT 1")
        log.compare(f"SHA-256 of {MODEL}", newest, sha256_of(path))


def _rule_of(evidence: Evidence) -> Aggregator | str:
    """The aggregator; a sentence if it cannot be imported."""
    if isinstance(modules := evidence.scenario.get("modules"), str):
        use(modules)
    try:
        rule = AGGREGATORS.parse(evidence.rule)
    except (ValueError, MusterError, ValidationError) as error:
        return f"the aggregator cannot be read: {error}"
    return rule if isinstance(rule, Aggregator) else f"{evidence.rule['kind']!r} is no aggregator"


def _updates(
    evidence: Evidence, log: CheckLog, round: int, codecs: Mapping[str, Codec], parameters: int
) -> Iterator[CountedUpdate]:
    """Yield the updates of a round, by client; fewer if some are missing or damaged."""
    path, rows = evidence.folder / UPDATES / kept_name(round), evidence.folded(round)
    if not rows:
        return
    try:
        with safe_open(path, "numpy") as file:
            stated = file.metadata() or {}
            kept = sorted(file.keys())
            log.compare(
                f"clients in {UPDATES}/{path.name}", [r["client"] for r in rows], kept, round
            )
            for row in rows:
                if row["client"] not in kept:
                    continue
                body = file.get_tensor(row["client"]).tobytes()
                found = xxhash.xxh3_128_hexdigest(body)
                log.compare("checksum of the kept update", stated.get(row["client"]), found, round,
                            row["client"])  # fmt: skip
                if found == stated.get(row["client"]):
                    codec = codecs[row["group"]]
                    vector = codec.read(pread_of(body), 0, parameters, parameters)
                    weight, base = row["weight"], row["base_version"]
                    yield CountedUpdate(row["client"], np.array(vector), weight, base)
    except (OSError, SafetensorError) as error:
        log.require(False, f"{UPDATES}/{path.name}", "the kept updates of the round", error, round)


def _codecs(evidence: Evidence) -> dict[str, Codec]:
    """The codec of the updates of every group."""
    found = {}
    for group in evidence.scenario.get("groups", []):
        setting = group.get("link", {}).get("compression", "none")
        codec = CODECS.parse(setting)
        assert isinstance(codec, Codec)
        found[group["name"]] = codec
    return found


def _scale(evidence: Evidence, round: int) -> float:
    """1, or minus the learning rate if devices return gradients."""
    training = evidence.scenario.get("training", {})
    if not training.get("gradient"):
        return 1.0
    rate = training["learning_rate"]
    if isinstance(rate, dict):
        schedule: Any = SCHEDULES.parse(rate)
        return -float(schedule.at(round))
    return -float(rate)


def _initial(evidence: Evidence) -> tuple[list[str], list[list[int]], Vector]:
    """Names and shapes of the tensors in the order of their bytes, and version 0."""
    tensors = evidence.server_config["schema_"]
    shapes = {tensor["name"]: tensor["shape"] for tensor in tensors}
    with safe_open(evidence.folder / _INITIAL, "numpy") as file:
        parts = [file.get_tensor(name).ravel() for name in shapes]
    return list(shapes), list(shapes.values()), np.concatenate(parts, dtype=np.float32)


def _frozen(evidence: Evidence) -> BoolArray | None:
    """Whether training must not move a coordinate; None: it may move all."""
    tensors = evidence.server_config["schema_"]
    kept = [tensor.get("trained") is False for tensor in tensors]
    sizes = [math.prod(tensor["shape"]) for tensor in tensors]
    return np.repeat(kept, sizes) if any(kept) else None


def _parameters(evidence: Evidence) -> int:
    return len(_initial(evidence)[2])


def _sha_of(evidence: Evidence, version: int) -> str | None:
    found = evidence.one("SELECT sha256 FROM versions WHERE version = ?", version)
    return None if found is None else str(found)


def _sha256(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _read(path: Path, begin: int, length: int) -> bytes:
    """Bytes of a file; fewer if it is shorter, none if it is missing."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return os.pread(file.fileno(), length, begin)
