"""The check of how a run has ended: whether it has as many rounds as it promised, and says so."""

import math

from muster.common.errors import RunFailed
from muster.emulator.records.parts import metrics_of
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.leaves import compare
from muster.emulator.run_audit.result import CheckLog
from muster.server.account.run_rows import all_metrics
from muster.server.aggregation.accountant import Accountant
from muster.server.evaluation.best import BestVersion
from muster.server.settings.server import ServerSettings

_STATUSES = ("completed", "diverged", "failed", "stopped")


def check_end(evidence: Evidence, log: CheckLog) -> None:
    """The run has the rounds that its scenario promises, and ended as its ledger says."""
    if isinstance(config := evidence.config, str):
        log.skip(f"how the run should end: {config}")
        return
    settings = config.server
    rounds = max(evidence.base_versions, default=0)
    versions = int(evidence.one("SELECT max(version) FROM versions") or 0)
    count, of = rounds, "rounds"
    if settings.mode.counts_versions:
        count, of = versions, "versions"
    log.require(count <= settings.rounds, f"number of {of}", f"at most {settings.rounds}", count)
    _check_target(evidence, settings, log)
    run = next(evidence.rows("SELECT * FROM run"), None)
    if run is None or run["status"] is None:
        log.skip("how the run has ended: it goes on, or its server was killed")
        return
    status, detail = run["status"], run["detail"]
    log.require(status in _STATUSES, "status", ", ".join(_STATUSES), status)
    log.require(run["ended_at"] is not None, "moment of the end", "a time", run["ended_at"])
    log.require(bool(detail), "detail of the status", "a sentence", detail)
    if status == "diverged":
        log.require(count < settings.rounds, f"number of {of} of a run that diverged",
                    f"fewer than {settings.rounds}", count)  # fmt: skip
    if status != "completed" or settings.aggregator.runs_strategy():
        return
    if why := ended(evidence, settings, versions):
        expected = f"{why} after round {rounds}"
        if count == settings.rounds:  # it was not asked for
            expected = str(detail)
    else:
        log.compare(f"number of {of} of a completed run", settings.rounds, count)
        of_versions = f"{versions} versions in " if settings.mode.counts_versions else ""
        expected = f"{of_versions}{rounds} rounds"
    log.compare("detail of the status", expected, detail)


def ended(evidence: Evidence, settings: ServerSettings, version: int) -> str:
    """Why the run should end with a version, as a part of a sentence; empty if it should not."""
    known = _evaluations(evidence)
    if settings.target.reached(known.get(version, {})):
        return "the target was reached"
    if settings.best is None:
        return ""
    best = BestVersion(settings.best)
    try:
        for evaluated in [number for number in known if number <= version]:
            best.enter(evaluated, known[evaluated])
    except RunFailed:  # the ledger lacks the metric
        return ""
    return best.exhausted


def _evaluations(evidence: Evidence) -> dict[int, dict[str, float]]:
    """The metrics of the evaluated versions, in their order."""
    found = {}
    for row in evidence.rows("SELECT * FROM evaluations ORDER BY version"):
        loss = math.nan if row["loss"] is None else row["loss"]
        found[row["version"]] = all_metrics(loss, row["accuracy"], metrics_of(row["metrics"]))
    return found


def _check_target(evidence: Evidence, settings: ServerSettings, log: CheckLog) -> None:
    """No round follows a version that has reached the target, or after which none better came."""
    if not settings.ends_early:
        return
    for row in evidence.rows("SELECT round, base_version FROM rounds ORDER BY round"):
        why = ended(evidence, settings, row["base_version"])
        log.require(not why, "round", f"none, because {why}", "a round", row["round"])


def check_privacy(evidence: Evidence, log: CheckLog) -> None:
    """Every round states what was spent up to it."""
    config = evidence.config
    if isinstance(config, str):
        log.skip(f"the privacy that was spent: {config}")
        return
    settings = config.server.privacy
    account = None if settings is None else Accountant(settings, config.sample)
    for row in evidence.rows("SELECT * FROM rounds ORDER BY round"):
        expected = None
        if account is not None:
            releases = account.releases(row["round"], row["version"])
            expected = account.epsilon(releases)
        compare(log, "epsilon", expected, row["epsilon"], row["round"])


CHECKS = (
    Check(
        "the end of the run",
        "A completed run has `server.rounds` rounds (or versions), or has reached its target, and "
        "no round follows a version that has. Its status and detail say so.",
        check_end,
    ),
    Check(
        "the privacy that was spent",
        "ε of every round, accounted again",
        check_privacy,
    ),
)
