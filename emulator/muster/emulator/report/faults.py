"""Faults in the report: their table, and the shades on every figure over rounds."""

from typing import Any

from muster.emulator.records.account import Account
from muster.emulator.records.fault_windows import fault_windows, occurrences_of
from muster.emulator.records.summary import clean
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_MOST_SHADES = 200


def section(account: Account, summary: Summary) -> ReportSection | None:
    """What was asked for, what was observed, and what became of it."""
    if not (faults := summary.get("faults")):
        return None
    columns = ["fault", "kind", "effect", "from", "until", "targets", "planned", "applied",
               "observed", "healed", "verified"]  # fmt: skip
    rows = [
        [
            clean(fault["fault"]),
            clean(fault["do"]),
            clean(fault["seen"] or "never observed"),
            *_rounds(fault),
            *(f"{fault[key]:,}" for key in ("targets", "planned", "applied", "observed")),
            *(f"{fault[key]:,}" for key in ("healed", "verified")),
        ]
        for fault in faults
    ]
    never = summary["vacuous"]
    points = [
        f"{clean(name)} was never observed, so this run proves nothing about it." for name in never
    ]
    text = (
        "The faults of the run, and how often each was planned, applied, observed where its effect "
        "should appear, healed, and verified to be over. The columns `from` and `until` have the "
        "rounds in which its first occurrence began and was healed. Charts over rounds shade the "
        "rounds in which a fault acted. A fault that lasts to the end of the run is not healed."
    )
    table = ReportTable(columns, rows, words=5, wraps=True)
    return ReportSection("Faults", text, table=table, points=points)


def _rounds(fault: dict[str, Any]) -> tuple[str, str]:
    """The round in which the first occurrence began, and the one in which it was healed."""
    if not fault["rounds"]:
        return "–", "–"
    first, healed = (fault["rounds"][0][key] for key in ("first", "healed"))
    return f"round {first}", "to the end" if healed is None else f"round {healed}"


def shaded_rounds(account: Account) -> list[tuple[int, int]]:
    """The intervals of rounds in which any fault acted, first and last, merged."""
    last = int(account.rounds["round"].max()) if len(account.rounds) else 0
    merged: list[tuple[int, int]] = []
    for window in fault_windows(occurrences_of(account)):
        first, end = window.first, window.last or max(last, window.first)
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((first, end))
    return merged[:_MOST_SHADES]
