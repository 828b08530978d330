"""The check of summary.json."""

import math
from typing import Any

from muster.emulator.records.summary import MODEL, SUMMARY, read_summary
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog, sha256_of


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


CHECKS = (
    Check(
        "the summary",
        "`summary.json` has the sums of the ledger.",
        check_summary,
    ),
)
