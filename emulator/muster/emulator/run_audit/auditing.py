"""Audits a run folder: runs every check, one after the other."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.ledger_checks import (
    check_contributions,
    check_evaluations,
    check_file,
    check_rounds,
    check_times,
    check_weights,
)
from muster.emulator.run_audit.record_checks import (
    check_inputs,
    check_journal,
    check_memory,
    check_summary,
    check_versions,
)
from muster.emulator.run_audit.result import AuditCheck, AuditResult, CheckLog
from muster.emulator.run_audit.rule_checks import check_aggregation, check_model, check_weighing
from muster.emulator.run_folder.folder import run_folder

CHECKS: Sequence[tuple[str, Callable[[Evidence, CheckLog], None]]] = (
    ("the ledger's file", check_file),
    ("what the run began with", check_inputs),
    ("rounds and versions", check_rounds),
    ("scenario time", check_times),
    ("contributions, each at most once", check_contributions),
    ("sums of the weights", check_weights),
    ("weights by the rule of the run", check_weighing),
    ("evaluations", check_evaluations),
    ("stored versions", check_versions),
    ("remembered updates", check_memory),
    ("versions made again from kept updates", check_aggregation),
    ("the model of the run", check_model),
    ("the journal", check_journal),
    ("the summary", check_summary),
)
"""The checks by what they are about, in the order in which they run."""


def audit(folder: Path | str) -> AuditResult:
    """Check the run in a folder, which may still be going on.

    The audit writes nothing into the folder. It reads the ledger with its own queries, and repeats
    weights and models with the code of the run's own rule, also of one of the user's own. So it
    finds what was changed or damaged after the run, and not an error in the rule.

    Raises:
        ConfigError: there is no run in the folder, or its scenario cannot be read.
        LedgerError: there is no ledger, or SQLite cannot read it.
    """
    run = run_folder(Path(folder))
    evidence = Evidence.of(run)
    with closing(evidence.ledger):
        return AuditResult(run, [_result(evidence, *check) for check in CHECKS])


def _result(
    evidence: Evidence, title: str, check: Callable[[Evidence, CheckLog], None]
) -> AuditCheck:
    log = CheckLog(title)
    check(evidence, log)
    return log.result


def describe(result: AuditResult) -> str:
    """An audit in lines: what was checked, what could not be, and the first difference."""
    width = max(len(check.title) for check in result.checks)
    lines = []
    for check in result.checks:
        found = []
        if check.differing:
            found = [f"{check.differing:,} of {check.compared:,} values DIFFER"]
        elif check.compared:
            some = "1 value agrees" if check.compared == 1 else f"{check.compared:,} values agree"
            found = [some]
        found += [f"not checked: {what}" for what in check.skipped]
        titles = [check.title, *[""] * len(found)]
        lines += [f"{title:<{width}}  {text}" for title, text in zip(titles, found, strict=False)]
    if result.first is not None:
        lines += ["", f"the first difference: {result.first}"]
    return "\n".join(lines)
