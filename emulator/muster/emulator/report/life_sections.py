"""The sections on simulated device state; a run without simulated devices has none of them."""

import math

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report.call_map import all_alike, calls_finding
from muster.emulator.report.chart import left_out
from muster.emulator.report.life import charges, charging_groups, mixed_groups, reasons_of
from muster.emulator.report.losses import unanswered
from muster.emulator.report.planned import amount, compared, same_in_all_rounds, varied_groups
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_MOST_REASONS = 3


def calls(account: Account, summary: Summary) -> ReportSection | None:
    if not account.has_lives:
        return None
    text = (
        "Each row is a device and each column a round. A device declines a call if its state does "
        "not allow training or if it is unwilling. Stripes across a group follow the hours of the "
        "day."
    )
    if silent := unanswered(account):
        text += f" {silent:,} calls got no answer and are blank."
    if all_alike(account):
        return ReportSection("Calls", f"{calls_finding(account)}.", _facts(account, summary))
    return ReportSection("Calls", text, _facts(account, summary), figure="calls")


def reasons(account: Account, summary: Summary) -> ReportSection | None:
    if not account.has_lives:
        return None
    text = (
        "Why calls did not lead to a folded update, as shares of each group's calls. Absent "
        "devices were offline, so they could not be called; their absences are counted too. White: "
        "no device of the group was called."
    )
    mixed = mixed_groups(account.calls)
    points = _only_reasons(account.calls[~account.calls["group"].isin(mixed)])
    points += left_out(len(mixed))
    return ReportSection("Reasons", text, figure="reasons" if mixed else "", points=points)


def _only_reasons(calls: pd.DataFrame) -> list[str]:
    """Sentences on the groups whose calls all ended in the same way."""
    firsts = reasons_of(calls).groupby(calls["group"], observed=True).first()
    return [f"{clean(str(group))}: all calls {clean(why)}." for group, why in firsts.items()]


def batteries(account: Account, summary: Summary) -> ReportSection | None:
    calls = charges(account)
    if calls.empty:
        return None
    text = (
        "The charge that devices reported when they answered a call. The band is the spread "
        "between devices, not an uncertainty."
    )
    varied = charging_groups(calls)
    others = calls[~calls["group"].isin(varied)].groupby("group", observed=True)["battery"].first()
    points = [
        f"{clean(str(group))}: a charge of {percent_text(level)} in every answer."
        for group, level in others.items()
    ]
    points += left_out(len(varied))
    return ReportSection("Batteries", text, figure="batteries" if varied else "", points=points)


def planned(account: Account, summary: Summary) -> ReportSection | None:
    rounds = compared(account)
    if rounds.empty:
        return None
    totals = rounds.groupby("group", sort=False).sum()
    rows = [[clean(str(group)), *_comparison(total)] for group, total in totals.iterrows()]
    columns = ["group", "called", "planned", "measured", "difference",
               "planned delivery", "measured delivery"]  # fmt: skip
    note = (
        "Planned and measured count updates. Delivery is these updates divided by enrolled devices "
        "times rounds. It is higher than participation if delivered updates were late or refused."
    )
    text = (
        "Planned and measured updates of devices that accepted a call and did not give up. In "
        "lockstep both come from the same random draws and should be equal. On the other clocks "
        "the plan is an expectation."
    )
    return ReportSection(
        "Plan and run",
        text,
        figure="planned" if varied_groups(rounds) else "",
        table=ReportTable(columns, rows, note),
        points=[*same_in_all_rounds(rounds), *left_out(len(varied_groups(rounds)))],
    )


def _comparison(total: pd.Series) -> list[str]:
    """The cells of a group, from its sums over the rounds."""
    updates, possible = total[["planned", "measured"]], total["enrolled"]
    shares = updates / possible if possible else updates * math.nan
    counts = [amount(count) for count in (total["called"], *updates)]
    difference = updates["measured"] - updates["planned"]
    return [*counts, f"{difference:+,.4g}", *map(percent_text, shares)]


def _facts(account: Account, summary: Summary) -> list[tuple[str, str]]:
    rounds, calls = account.rounds, account.calls[account.calls["fate"] != "absent"]
    called = int(rounds["called"].sum())
    why = reasons_of(calls[calls["fate"] != "folded"]).value_counts().head(_MOST_REASONS)
    shown = [f"{clean(reason)} {percent_text(count / called)}" for reason, count in why.items()]
    facts = [
        ("enrolled", f"{summary['enrolled']:,} of {summary['population']:,}"),
        ("accepted calls", percent_text(rounds["accepted"].sum() / called if called else None)),
    ]
    return facts + ([("most frequent reasons", ", ".join(shown))] if shown else [])
