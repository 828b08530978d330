"""The check that the files of a folder are those that the run left."""

from muster.emulator.records.manifest import (
    MANIFEST,
    Read,
    damaged_files,
    goes_on,
    has_checksums,
    is_sealed_folder,
)
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog


def check_files(evidence: Evidence, log: CheckLog) -> None:
    """The files of the folder are those that the run left."""
    folder = evidence.folder
    if goes_on(folder):
        log.skip("the run goes on, so its files change")
        return
    if not is_sealed_folder(folder):
        killed = has_checksums(folder)
        why = "nobody has concluded the run" if killed else "an older version of muster wrote none"
        log.skip(f"most files: there is no {MANIFEST}, since {why}")
    damaged = list(damaged_files(folder, Read.AUDIT))
    for name, expected, found, _ in damaged:
        log.compare(name, expected, found)
    log.compare("number of damaged files", 0, len(damaged))


CHECKS = (
    Check(
        "the files of the folder",
        "Every file has the checksum that `manifest.json` recorded when the run was concluded, and "
        "every page of the ledger that of `ledger.sqlite-sums`. If nobody has concluded the run, "
        "every line of the journal has its checksum.",
        check_files,
    ),
)
