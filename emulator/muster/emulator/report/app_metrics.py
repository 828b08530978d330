"""The section on what the server side of a Flower app measured."""

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, number_text
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_TEXT = (
    "What the app itself measured. Names that begin with train and evaluate: its strategy "
    "aggregated what devices measured in their training, and of the model that the round made. "
    "Names that begin with server: the ServerApp measured the model. Round 0 is the initial model."
)


def section(account: Account, summary: Summary) -> ReportSection | None:
    found = account.app_metrics
    if found.empty:
        return None
    rows = []
    for name, values in found.groupby("metric", sort=False):
        numbers, last = values["value"].dropna(), values.iloc[-1]
        ends = (number_text(numbers.min()), number_text(numbers.max()))
        rows.append([clean(str(name)), f"{len(values):,}", f"{last['round']:,}",
                     number_text(last["value"]), *ends])  # fmt: skip
    columns = ["metric", "rounds", "newest round", "newest", "lowest", "highest"]
    note = "All are in ledger.sqlite, table estimates, as app_measured."
    return ReportSection("Metrics of the app", _TEXT, table=ReportTable(columns, rows, note))
