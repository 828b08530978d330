"""The section on secure aggregation."""

from muster.emulator.records.account import Account
from muster.emulator.records.secure_sums import failure_text
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_MOST_ROWS = 20

_TEXT = (
    "The server got the weighted sum of the updates of each round, and no update. A round has no "
    "sum if too few devices stay to open it. Nothing of its updates is known then."
)

_PLAIN = (
    "Devices sent their weighted updates without pads (server.secure.plain), so the server saw "
    "every update. The model is that of the same run with pads."
)


def section(account: Account, summary: Summary) -> ReportSection | None:
    """The rounds without a secure sum, with the reason; None for a run without secure sums."""
    if (settings := account.scenario.get("server", {}).get("secure")) is None:
        return None
    first = "update" if settings.get("plain") else "keys"
    begun, failed = 0, {}
    for event in account.events("secure_step", "secure_sum_failed"):
        if event["event"] == "secure_sum_failed":
            failed[event["round"]] = event
        elif event["step"] == first and event["answered"] is None:
            begun += 1
    committed = account.rounds[["round", "outcome"]].to_dict("records")
    empty = {row["round"] for row in committed if row["outcome"] == "empty"}
    rows = [[f"{round}", failure_text(failed[round])] for round in sorted(empty & failed.keys())]
    facts = [("attempts", f"{begun:,}"), ("rounds without a sum", f"{len(rows):,}")]
    note = f"{len(rows) - _MOST_ROWS:,} more are in journal.jsonl." if rows[_MOST_ROWS:] else ""
    table = ReportTable(["round", "why"], rows[:_MOST_ROWS], note, words=2) if rows else None
    text = _PLAIN if settings.get("plain") else _TEXT
    return ReportSection("Secure aggregation", text, facts, table=table)
