"""What a run comes to, from its folder alone: summary and report."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.emulator.account import Account


def conclude(folder: Path, status: str | None = None) -> tuple[dict[str, Any], "Account"] | None:
    """Write summary.json and the report; None where there is no ledger that can be read.

    Args:
        status: what the run ended as, where the ledger cannot know.
    """
    if not (folder / "ledger.sqlite").exists():
        return None
    # pandas and matplotlib take seconds to import; while devices start, those are theirs.
    from muster.common.errors import LedgerError
    from muster.emulator.account import Account
    from muster.emulator.report import write_report
    from muster.emulator.summary import summarise, write_summary

    try:
        account = Account(folder)
    except LedgerError:
        return None
    summary = summarise(account, status)
    write_summary(folder, summary)
    write_report(folder)
    return summary, account
