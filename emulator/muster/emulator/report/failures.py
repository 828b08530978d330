"""The section on training that raised an error."""

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_NAMED = 3

_TEXT = (
    "Training raised these errors, so that the device gave up its call. The logs of the devices "
    "have the tracebacks."
)


def section(account: Account, summary: Summary) -> ReportSection | None:
    found = summary.get("training_failed")
    if not found:
        return None
    rows = [
        [clean(each["error"]), _named(each["clients"], each["devices"]), f"{each['calls']:,}",
         f"{each['first_round']:,}", f"{each['last_round']:,}"]
        for each in found["errors"]
    ]  # fmt: skip
    left_out = found["left_out"]
    text = _TEXT
    if left_out:
        text += f" Left out of later rounds: {_named(left_out, len(left_out))}."
    columns = ["error", "devices", "calls", "first round", "last round"]
    table = ReportTable(columns, rows, "All are in ledger.sqlite, table contributions.", words=2)
    return ReportSection("Training that failed", text, table=table)


def _named(clients: list[str], number: int) -> str:
    more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    return f"{', '.join(map(clean, clients[:_NAMED]))}{more}"
