"""The checks of `muster audit`, and what it cannot check."""

from generation.markdown import table
from muster.emulator.run_audit.auditing import CHECKS
from muster.emulator.run_audit.unchecked import UNCHECKED
from muster.laboratory import trained_again


def checks() -> list[str]:
    """A row for each check."""
    rows = [(check.title, check.says) for check in (*CHECKS, *trained_again.CHECKS)]
    return table(("check", "what it compares"), rows)


def unchecked() -> list[str]:
    """A row for each sort of change that the audit cannot find."""
    rows = [(each.what, f"cannot be checked, because {each.because}") for each in UNCHECKED]
    return table(("what", "why"), rows)
