"""Versions in time: the section, and the figure of versions and of working devices over time."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import lockstep, round_ends
from muster.emulator.records.summary import clean, percent_text, seconds_text
from muster.emulator.report import style
from muster.emulator.report.names import drawable
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.timeline import MOST_PANELS, nothing
from muster.emulator.report.training_times import ON_THIS_MACHINE
from muster.emulator.report.working_time import (
    version_ends,
    working_course,
    working_shares,
)

_COURSE_BINS = 60
_COURSES_IN, _WORKING_IN, _AROUND_IN = 2.6, 2.2, 0.6
_COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.AMBER, style.INK, style.LIGHT,
            style.MUTED, style.PALE)  # fmt: skip
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


def pace(account: Account) -> Figure:
    """Versions over scenario time and over wall time, and the share of devices that work."""
    made = version_ends(account).dropna()
    if made.empty or working_shares(account).empty:
        return nothing("No pace", "No version has a time, or devices need no time for their work.")
    figure = style.new_figure(_COURSES_IN + _WORKING_IN + _AROUND_IN)
    grid = figure.add_gridspec(2, 2, height_ratios=[_COURSES_IN, _WORKING_IN])
    begin_s = float(account.rounds["scenario_s"].min())
    scenario, wall = (figure.add_subplot(grid[0, column]) for column in (0, 1))
    _versions(scenario, made["scenario_s"], made["version"], begin_s, "of scenario time")
    _versions(wall, made["wall_s"], made["version"], 0.0, ON_THIS_MACHINE)
    _working(figure.add_subplot(grid[1, :]), account, begin_s)
    return figure


def _versions(axes: Axes, times: pd.Series, versions: pd.Series, begin_s: float, of: str) -> None:
    size, unit = _unit(float(times.max()))
    took = seconds_text((float(times.max()) - begin_s) / len(times))
    axes.plot([begin_s / size, *times / size], [versions.iloc[0] - 1, *versions],
              drawstyle="steps-post", color=style.BLUE, linewidth=1.6)  # fmt: skip
    style.tidy(axes, f"A version every {took} {of}", f"{unit} {of}", "version")
    axes.set(xlim=(begin_s / size, None), ylim=(0, None))
    style.count(axes.yaxis, 5)


def _working(axes: Axes, account: Account, begin_s: float) -> None:
    """Draw the share of each group's enrolled devices that work, over scenario time."""
    clients = account.clients[account.clients["enrolled_at"].notna()]
    last_s = float(round_ends(account).max())
    edges = np.linspace(begin_s, last_s, _COURSE_BINS + 1)
    size, unit = _unit(last_s)
    groups = list(clients["group"].drop_duplicates())
    share = percent_text(float(working_shares(account)["all"]))
    several = len(groups) > 1
    style.tidy(axes, f"Devices work {share} of the time", f"{unit} of scenario time",
               "devices that work", key=several)  # fmt: skip
    for group, colour in zip(groups[:MOST_PANELS], _COLOURS, strict=False):
        mine = clients.loc[clients["group"] == group, "client"]
        course = working_course(account, mine, edges) / len(mine)
        axes.stairs(course, edges / size, baseline=None, color=colour, linewidth=1.6,
                    label=drawable(clean(group)))  # fmt: skip
    axes.set(xlim=(begin_s / size, last_s / size), ylim=(0, 1.03))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    if several:
        style.key_above(axes)


def _unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time is drawn: its seconds, and its name."""
    for least, size, name in _UNITS:
        if seconds >= least:
            return float(size), name
    return 1.0, "seconds"
