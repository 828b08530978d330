"""What a run comes to, from its folder alone: summary and report."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.emulator.results.account import Account


def conclude(
    folder: Path, status: str | None = None, *, report: bool = True
) -> tuple[dict[str, Any], "Account"] | None:
    """Write summary.json and the report; None where there is no ledger that can be read.

    Args:
        status: what the run ended as, where the ledger cannot know.
        report: whether a report is wanted; drawing it takes most of the time here.
    """
    if not (folder / "ledger.sqlite").exists():
        return None
    # pandas and matplotlib take seconds to import; while devices start, those are theirs.
    from muster.common.errors import LedgerError
    from muster.emulator.results.account import Account
    from muster.emulator.results.summary import summarise, write_summary

    try:
        account = Account(folder)
    except LedgerError:
        return None
    summary = summarise(account, status)
    write_summary(folder, summary)
    if report:
        from muster.emulator.results.report import write_report

        write_report(folder)
    return summary, account
