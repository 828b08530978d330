"""Versions in time: the section, and the figure of versions and of working devices over time."""

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import lockstep, round_ends
from muster.emulator.records.summary import clean, percent_text, seconds_text
from muster.emulator.report.chart import (
    MOST_PANELS,
    SHARE,
    Axis,
    Chart,
    course,
    group_colours,
    labelled,
    line,
)
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.training_times import ON_THIS_MACHINE
from muster.emulator.report.working_time import version_ends, working_course, working_shares

_COURSE_BINS = 60
_UNITS = ((3 * 86_400, 86_400, "days"), (3 * 3600, 3600, "hours"), (180, 60, "minutes"))


def section(account: Account, summary: Summary) -> ReportSection | None:
    """The pace, the working time by group, and the figure; None if no version has a time, or if no
    device needs any scenario time for its work."""
    made, shares = version_ends(account), working_shares(account)
    times = made["scenario_s"].dropna()
    if times.empty or shares.empty:
        return None
    text = (
        "A device works from its call until its update is ready; the rest of the time it is idle, "
        "or cannot be reached. Shares are of the scenario time of the run and of the enrolled "
        "devices, so runs in different modes can be compared."
    )
    if lockstep(account):
        text += (
            ' Times are those of the scenario. With `clock.kind` "rounds", a round of the '
            "synchronous and the opportunistic mode always takes `clock.round_s` of it; with "
            '"modelled", it takes as long as its work.'
        )
    facts = [
        ("versions", f"{len(made):,}"),
        ("scenario time", seconds_text(float(round_ends(account).max()))),
        ("share of it in which a device works", percent_text(float(shares["all"]))),
        ("idle", percent_text(1 - float(shares["all"]))),
    ]
    rows = [
        [clean(group), percent_text(share), percent_text(1 - share)]
        for group, share in shares.drop("all").items()
    ]
    table = ReportTable(["group", "working", "idle"], rows) if len(rows) > 1 else None
    return ReportSection("Versions in time", text, facts, "pace", table)


def pace(account: Account) -> list[Chart]:
    """Versions over scenario time and over wall time, and the share of devices that work."""
    made = version_ends(account).dropna()
    if made.empty or working_shares(account).empty:
        return []
    begin_s = float(account.rounds["scenario_s"].min())
    return [
        _versions(made["scenario_s"], made["version"], begin_s, "of scenario time"),
        _versions(made["wall_s"], made["version"], 0.0, ON_THIS_MACHINE),
        _working(account, begin_s),
    ]


def _versions(times: pd.Series, versions: pd.Series, begin_s: float, of: str) -> Chart:
    size, unit = _unit(float(times.max()))
    took = seconds_text((float(times.max()) - begin_s) / len(times))
    made = pd.Series([versions.iloc[0] - 1, *versions], [begin_s / size, *times / size])
    x = Axis(f"{unit} {of}", low=begin_s / size)
    y = Axis("version", "count", 0.0)
    return Chart(f"A version every {took} {of}", [course(made, "blue")], x, y)


def _working(account: Account, begin_s: float) -> Chart:
    """The share of each group's enrolled devices that work, over scenario time."""
    clients = account.clients[account.clients["enrolled_at"].notna()]
    last_s = float(round_ends(account).max())
    edges = np.linspace(begin_s, last_s, _COURSE_BINS + 1)
    size, unit = _unit(last_s)
    groups = list(clients["group"].drop_duplicates())
    share = percent_text(float(working_shares(account)["all"]))
    layers = []
    for group, colour in group_colours(groups[:MOST_PANELS]).items():
        mine = clients.loc[clients["group"] == group, "client"]
        working = working_course(account, mine, edges) / len(mine)
        label = clean(group) if len(groups) > 1 else ""
        layers.append(line("levels", edges / size, working, colour, label))
    x = Axis(f"{unit} of scenario time", low=begin_s / size, high=last_s / size)
    y = labelled(SHARE, "devices that work")
    return Chart(f"Devices work {share} of the time", layers, x, y)


def _unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time is drawn: its seconds, and its name."""
    for least, size, name in _UNITS:
        if seconds >= least:
            return float(size), name
    return 1.0, "seconds"
