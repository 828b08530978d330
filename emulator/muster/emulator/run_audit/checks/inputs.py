"""The check of what a run began with."""

from muster.common.errors import ConfigError
from muster.emulator.records.inputs import KINDS, changes, inputs_of, recorded_inputs
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog


def check_inputs(evidence: Evidence, log: CheckLog) -> None:
    """The scenario, code, files and model of the run are those with which it began."""
    recorded = recorded_inputs(evidence.ledger)
    if not recorded:
        log.skip("the scenario and code of your own: the ledger does not record them")
        return
    try:
        of_folder = changes(recorded, evidence.folder)
        changed = {(change.kind, change.name): change for change in of_folder}
    except ConfigError as error:
        log.skip(str(error))
        return
    known = {row.kind for row in inputs_of(evidence.folder)}
    for row in recorded:
        if row.kind not in known:
            log.skip(f"{KINDS[row.kind].what}: it is compared when the run is resumed")
            continue
        key = row.kind, row.name
        found = changed[key].found if key in changed else row.sha256
        log.compare(f"SHA-256 of {row.name}", row.sha256, found)
    for key in sorted(changed.keys() - {(row.kind, row.name) for row in recorded}):
        log.compare(f"SHA-256 of {key[1]}", changed[key].expected, changed[key].found)


CHECKS = (
    Check(
        "what the run began with",
        "`scenario.toml`, every module of your own code, the files that the scenario names, the "
        "timeline of faults and the initial model have the SHA-256 that the ledger recorded when "
        "the run began.",
        check_inputs,
    ),
)
