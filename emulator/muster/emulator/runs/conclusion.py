"""Concludes a run: writes its summary, report and manifest, using only its folder."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.emulator.records.account import Account


def import_for_conclusion(report: bool) -> None:
    """Import what `conclude` needs, pandas above all, which takes half a second."""
    import_module("muster.emulator.records.account")
    if report:
        import_module("muster.emulator.report")


def conclude(
    folder: Path, status: str | None = None, *, report: bool = True
) -> tuple[dict[str, Any], "Account"] | None:
    """Write summary.json, the report and the manifest of a run folder.

    Args:
        status: the status with which the run ended, if the ledger cannot know it.
        report: whether to write the report.

    Returns:
        The summary and the account, or None if there is no ledger that can be read.
    """
    if not (folder / "ledger.sqlite").exists():
        return None
    from muster.common.errors import LedgerError
    from muster.emulator.records.account import Account
    from muster.emulator.records.manifest import seal
    from muster.emulator.records.summary import summarise, write_summary

    try:
        account = Account(folder)
    except LedgerError:
        return None
    summary = summarise(account, status)
    write_summary(folder, summary)
    if report:
        from muster.emulator.report import report_account

        report_account(account, summary)
    seal(folder)
    return summary, account
