"""The section of the report about the expectations of the scenario."""

from muster.emulator.records.account import Account
from muster.emulator.records.judging import measured_text
from muster.emulator.records.summary import clean, failed_expectations
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_COLUMNS = ("", "expected", "measured", "round", "rounds judged", "fails in")


def section(account: Account, summary: Summary) -> ReportSection | None:
    """Which expectations hold, with the numbers; None for a scenario without expectations."""
    judgements = summary.get("expectations", [])
    if not judgements:
        return None
    rows = []
    for judgement in judgements:
        round = judgement["round"]
        rows.append(
            [
                "holds" if judgement["holds"] else "fails",
                clean(f"{judgement['that']} {judgement['where']}"),
                clean(measured_text(judgement)),
                "–" if round is None else f"{round:,}",
                f"{judgement['judged']:,}",
                f"{judgement['failed']:,}",
            ]
        )
    failed = failed_expectations(summary)
    found = "All of them hold." if not failed else f"{failed} of {len(rows)} fail."
    text = (
        f"What the scenario expects of the run. {found} The values are those of the round that "
        f"decides: the first in which the condition fails or, if it holds, the one in which it "
        f"does so most narrowly."
    )
    return ReportSection(
        "Expectations", text, table=ReportTable(_COLUMNS, rows, words=3, wraps=True)
    )
