"""Checks of evaluations."""

from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog


def check_evaluations(evidence: Evidence, log: CheckLog) -> None:
    """A round has the loss and the accuracy of the evaluation of its version."""
    query = (
        "SELECT r.round, r.version, r.loss, r.accuracy, e.round AS made, e.loss AS measured, "
        "e.accuracy AS accuracy_measured FROM evaluations e JOIN rounds r ON r.version = e.version "
        "AND r.outcome = 'aggregated' ORDER BY r.round"
    )
    for row in evidence.rows(query):
        log.compare("round of the evaluation", row["round"], row["made"], row["round"])
        log.compare("loss", row["measured"], row["loss"], row["round"])
        log.compare("accuracy", row["accuracy_measured"], row["accuracy"], row["round"])


CHECKS = (
    Check(
        "evaluations",
        "The loss and accuracy of a round are those of its version.",
        check_evaluations,
    ),
)
