"""Audits a run folder: runs every check, one after the other."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from muster.common.errors import MusterError
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.checks import (
    calls,
    conclusion,
    evaluations,
    faults,
    files,
    inputs,
    journal,
    ledger,
    life,
    measured,
    moments,
    promises,
    rule,
    secure_sums,
    sessions,
    stored,
    summary,
    times,
    told_rounds,
    traffic,
    updates,
    valuations,
)
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import AuditCheck, AuditResult, CheckLog
from muster.emulator.run_folder.folder import run_folder

CHECKS: Sequence[Check] = (
    *inputs.CHECKS,
    *ledger.CHECKS,
    *times.CHECKS,
    *rule.CHECKS,
    *secure_sums.CHECKS,
    *evaluations.CHECKS,
    *stored.CHECKS,
    *journal.CHECKS,
    *sessions.CHECKS,
    *told_rounds.CHECKS,
    *faults.CHECKS,
    *summary.CHECKS,
    *promises.CHECKS,
    *calls.CHECKS,
    *life.CHECKS,
    *updates.CHECKS,
    *traffic.CHECKS,
    *valuations.CHECKS,
    *moments.CHECKS,
    *conclusion.CHECKS,
    *measured.CHECKS,
    *files.CHECKS,
)
"""The checks, in the order in which they run."""


def audit(folder: Path | str, *, evaluate: bool = False, more: Sequence[Check] = ()) -> AuditResult:
    """Check the run in a folder, which may still be going on.

    The audit writes nothing into the folder. It reads the ledger with its own queries, and repeats
    weights and models with the code of the run's own rule, also of one of the user's own. So it
    finds what was changed or damaged after the run, and not an error in the rule.

    Args:
        evaluate: whether to open the task, and to measure models again. It imports torch.
        more: further checks, such as `muster.laboratory.trained_again.CHECKS`.

    Raises:
        ConfigError: there is no run in the folder, or its scenario cannot be read.
        LedgerError: there is no ledger, or SQLite cannot read it.
    """
    return AuditResult(
        run_folder(Path(folder)), list(results(folder, evaluate=evaluate, more=more))
    )


def results(
    folder: Path | str, *, evaluate: bool = False, more: Sequence[Check] = ()
) -> Iterator[AuditCheck]:
    """Yield the result of each check as soon as it is known; as `audit`."""
    evidence = Evidence.of(run_folder(Path(folder)), evaluate)
    with closing(evidence.ledger):
        for check in (*CHECKS, *more):
            yield _result(evidence, check)


def _result(evidence: Evidence, check: Check) -> AuditCheck:
    log = CheckLog(check.title)
    try:
        check.compare(evidence, log)
    except MusterError:
        raise
    except Exception as error:  # a folder that somebody has changed may say anything
        found = f"{type(error).__name__}: {error}"
        log.require(False, check.title, "values as a run leaves them", found)
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
