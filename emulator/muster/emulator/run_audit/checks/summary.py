"""The check of summary.json."""

import math
from typing import Any

from muster.common.errors import ConfigError
from muster.emulator.records.account import Account
from muster.emulator.records.summary import MODEL, SUMMARY, read_summary, summarise
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.leaves import MISSING, compare_leaves
from muster.emulator.run_audit.result import CheckLog, sha256_of


def check_summary(evidence: Evidence, log: CheckLog) -> None:
    """summary.json has the sums of the ledger."""
    summary = _summary(evidence, log)
    if summary is None:
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


def _summary(evidence: Evidence, log: CheckLog) -> dict[str, Any] | None:
    """The summary of the run as it is; None if there is none."""
    summary = read_summary(evidence.folder)
    if not summary:
        path = evidence.folder / SUMMARY
        ended = evidence.status is not None and path.is_file()
        log.require(not ended, SUMMARY, "a table in JSON", "none")
        log.skip(f"{SUMMARY} is missing or not JSON")
        return None
    if evidence.status is None and summary.get("rounds") != len(evidence.committed):
        log.skip(f"{SUMMARY}: the run has gone on since it was written")
        return None
    return summary


def check_conclusions(evidence: Evidence, log: CheckLog) -> None:
    """Everything in summary.json follows from the run: also the expectations, judged again, and
    the faults that were never observed."""
    summary = _summary(evidence, log)
    if summary is None:
        return
    try:
        with Account(evidence.folder) as account:
            expected = summarise(account)
    except ConfigError as error:
        log.skip(f"what the summary concludes: {error}")
        return
    if not evidence.current:  # what it had to say was less
        expected = {key: value for key, value in expected.items() if key in summary}
    if evidence.status is None:  # the supervisor knows why its server is gone
        expected |= {key: summary.get(key, MISSING) for key in ("status", "detail")}
    compare_leaves(log, "{} in " + SUMMARY, expected, summary)


CHECKS = (
    Check(
        "the summary",
        "`summary.json` has the sums of the ledger, by queries of the audit.",
        check_summary,
    ),
    Check(
        "the conclusions",
        "Everything else in `summary.json` follows from ledger, journal and scenario: the last "
        "evaluation, transfers, privacy, faults and which of them were vacuous, the expectations, "
        "judged again, and the target.",
        check_conclusions,
    ),
)
