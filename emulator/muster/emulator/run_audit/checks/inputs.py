"""The check of what a run began with."""

from muster.common.errors import ConfigError
from muster.emulator.records.inputs import changes, recorded_inputs
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog


def check_inputs(evidence: Evidence, log: CheckLog) -> None:
    """The scenario and the code of the user's own are those with which the run began."""
    recorded = recorded_inputs(evidence.ledger)
    if not recorded:
        log.skip("the scenario and code of your own: the ledger does not record them")
        return
    try:
        changed = {change.name: change for change in changes(recorded, evidence.folder)}
    except ConfigError as error:
        log.skip(str(error))
        return
    for row in recorded:
        found = changed[row.name].found if row.name in changed else row.sha256
        log.compare(f"SHA-256 of {row.name}", row.sha256, found)
    for name in changed.keys() - {row.name for row in recorded}:
        log.compare(f"SHA-256 of {name}", changed[name].expected, changed[name].found)


CHECKS = (
    Check(
        "what the run began with",
        "`scenario.toml` and every module of your own code have the SHA-256 that the ledger "
        "recorded when the run began.",
        check_inputs,
    ),
)
