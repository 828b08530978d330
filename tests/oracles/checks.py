"""Checks a run with the independent formulas: weights, models and the weights of rational devices.

`muster audit` repeats the code of the run's own rule, so it would repeat an error of the rule.
These checks share nothing with the rules: they derive what a run should have from its ledger and
its updates.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from tests.oracles.formulas import RoundContext
from tests.oracles.next_model import CountedUpdate, ModelChain, RuleForm
from tests.oracles.utility_weights import check_utility_weights
from tests.oracles.vector_formulas import VECTOR_FORMULAS
from tests.oracles.weights import clips, compare_weights, weights_of

from muster.common.compression import CODECS, Codec, pread_of
from muster.common.masks import GroupMasks, Layout
from muster.common.schedules import SCHEDULES
from muster.common.seeds import BoolArray
from muster.common.tensors import Vector, safetensors_header, schema_of
from muster.emulator.records.summary import MODEL
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.result import AuditCheck, CheckLog
from muster.server.aggregators import (
    AGGREGATORS,
    Aggregator,
    Combining,
    Recalling,
    Remembering,
    Stepping,
)
from muster.server.updates.kept import UPDATES, kept_name

_INITIAL = "setup/initial.safetensors"


def weights_by_formula(folder: Path) -> AuditCheck:
    """The weights and normalisers of a run by the formula of its rule; those of rational devices
    by the conditions that they must fulfil."""
    evidence, log = Evidence.of(folder), CheckLog("weights by formula")
    with closing(evidence.ledger):
        check_utility_weights(evidence, log)
        derive = weights_of(evidence)
        if isinstance(derive, str):
            log.skip(derive)
        else:
            query = "SELECT * FROM rounds WHERE outcome = 'aggregated' ORDER BY round"
            for row in evidence.rows(query):
                folded = folded_of(evidence, row["round"])
                if folded:
                    compare_weights(derive(row["round"], folded), folded, row, log)
    return log.result


def models_by_formula(folder: Path) -> AuditCheck:
    """The versions of a run that kept its updates, made again with integers; and the weights that
    follow from the updates."""
    evidence, log = Evidence.of(folder), CheckLog("versions by formula")
    with closing(evidence.ledger):
        rule = AGGREGATORS.parse(evidence.rule)
        assert isinstance(rule, Aggregator)
        form = RuleForm(
            change=_change_of(rule),
            parameters=rule.weighs == "parameters",
            mixes=rule.mixes,
            settings=evidence.rule,
            carries=evidence.outlives_round,
            enrolled=len(evidence.enrolled),
        )
        _make_again(evidence, log, form, rule)
    return log.result


def folded_of(evidence: Evidence, round: int) -> list[Row]:
    """The updates that count in a round, by client: the columns of `contributions`, and `group`,
    and `x`, the covariates X that the server knew of the device in that round."""
    query = (
        'SELECT c.*, k."group" AS "group", a.x AS x FROM contributions c '
        "JOIN clients k USING (client) "
        "LEFT JOIN answers a ON a.round = c.round AND a.client = c.client "
        "WHERE c.round = ? AND c.outcome = 'folded' ORDER BY c.client"
    )
    return list(evidence.rows(query, round))


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
    codecs, masks, context = _codecs(evidence), _masks(evidence), RoundContext.of(evidence)
    formula = None if clips(evidence) else VECTOR_FORMULAS.get(evidence.rule["kind"])
    versions, total = 0, np.zeros(len(initial))
    oldest = int(evidence.mode.get("max_staleness") or 0)
    for row in evidence.rows("SELECT * FROM rounds WHERE outcome = 'aggregated' ORDER BY round"):
        entries = len(initial) * (2 if rule.control else 1)
        updates = list(_updates(evidence, row["round"], codecs, masks, entries))
        if len(updates) != row["folded"]:
            return  # the reason is in the log; nothing after it can be made
        if formula is not None:
            folded = folded_of(evidence, row["round"])
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
                    _sha256(header, offered.tobytes()), _sha_of_file(path))  # fmt: skip


def _updates(
    evidence: Evidence,
    round: int,
    codecs: Mapping[str, Codec],
    masks: Mapping[str, GroupMasks],
    parameters: int,
) -> Iterator[CountedUpdate]:
    """Yield the updates of a round, by client."""
    rows = folded_of(evidence, round)
    if not rows:
        return
    with safe_open(evidence.folder / UPDATES / kept_name(round), "numpy") as file:
        for row in rows:
            body = file.get_tensor(row["client"]).tobytes()
            chosen = np.ones(parameters, bool)
            if (of_group := masks.get(row["group"])) is not None:
                place = evidence.one("SELECT position FROM clients WHERE client = ?", row["client"])
                chosen = of_group.of(row["client"], place, row["call_round"]).whole()
            sent, vector = int(chosen.sum()), np.zeros(parameters, np.float32)
            vector[chosen] = codecs[row["group"]].read(pread_of(body), 0, sent, sent)
            of_row = row["client"], vector, row["weight"], row["base_version"]
            yield CountedUpdate(*of_row, chosen if masks else None)


def _masks(evidence: Evidence) -> dict[str, GroupMasks]:
    """The masks of each group whose devices train parts of the model."""
    config = evidence.config
    assert not isinstance(config, str), config
    layout = Layout(config.tensors, config.units)
    return {
        group: GroupMasks(of_group.masking, layout, of_group.capacity, config.seed)
        for group, of_group in config.masks.items()
    }


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


def _sha_of(evidence: Evidence, version: int) -> str | None:
    found = evidence.one("SELECT sha256 FROM versions WHERE version = ?", version)
    return None if found is None else str(found)


def _sha256(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _sha_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
