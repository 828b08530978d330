"""The section on energy and carbon."""

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.energy import GRAM_NG, JOULE_UJ, PHASE_COLUMNS, energy_of, joules_text
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_TEXT = (
    "The modelled energy of the calls that devices accepted, by phase. Wasted is what was spent on "
    "calls whose update did not become part of the model. Idle is what a device takes anyway, from "
    "its call until the round is over and its work done: waiting for slow devices is in it."
)


def section(account: Account, summary: Summary) -> ReportSection | None:
    """What the run took; None without `[energy]`."""
    energy = energy_of(account)
    if energy is None:
        return None
    totals = summary["energy"]
    wasted = totals["wasted"] / totals["joules"] if totals["joules"] else None
    facts = [("energy", joules_text(totals["joules"])), ("wasted", percent_text(wasted))]
    if "co2e_g" in totals:
        facts.append(("CO₂ equivalent", f"{totals['co2e_g']:.4g} g"))
    columns = ["group", *PHASE_COLUMNS.values(), "total", "wasted"]
    groups = energy.groupby("group", sort=False)
    rows = [_row(clean(str(group)), calls) for group, calls in groups]
    if len(rows) > 1:
        rows.append(_row("all", energy))
    if "co2e_ng" in energy:
        columns.append("CO₂ equivalent")
    table = ReportTable(columns, rows) if rows else None
    return ReportSection("Energy", _TEXT, facts, table=table)


def _row(name: str, calls: pd.DataFrame) -> list[str]:
    wasted = calls.loc[~calls["counted"], "total_uj"]
    sums = [*(calls[column].sum() for column in (*PHASE_COLUMNS, "total_uj")), wasted.sum()]
    carbon = [f"{calls['co2e_ng'].sum() / GRAM_NG:.4g} g"] if "co2e_ng" in calls else []
    return [name, *(joules_text(int(each) / JOULE_UJ) for each in sums), *carbon]
