"""Participation: the section, and the figure of called and folded devices by round and client."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import outlives_round
from muster.emulator.records.summary import (
    PARTICIPATION,
    participation_rate,
    participation_text,
    percent_text,
)
from muster.emulator.report import style
from muster.emulator.report.heat_strip import (
    draw_heat_strip,
    heat_strip_finding,
    strip_height_in,
)
from muster.emulator.report.section import ReportSection, Summary
from muster.emulator.report.timeline import nothing

_COHORT = ["called", "accepted", "folded"]
_COHORTS_IN, _TITLE_IN = 1.9, 0.9


def section(account: Account, summary: Summary) -> ReportSection:
    """Participation with its definition, and the figure if rounds or clients differ."""
    rounds, clients = account.rounds, account.client_totals
    called, folded = int(rounds["called"].sum()), int(rounds["folded"].sum())
    points = []
    if rounds_differ(rounds) and not outlives_round(account.scenario):
        points.append(
            "The pale part of a bar is the devices that were called in the round but whose update "
            "was not folded into the model."
        )
    elif not rounds_differ(rounds) and len(rounds):
        points.append(_every_round(rounds))
    if outlives_round(account.scenario):
        points.append(
            "In this mode an update may count in a later round than that of its call, so a round "
            "may fold more updates than it called devices."
        )
    if clients_differ(clients):
        points.append(
            "In the strip of devices, different colours mean that some devices contributed more "
            "updates than others."
        )
    elif len(clients):
        points.append(f"{heat_strip_finding(clients)}.")
    facts = [
        ("participation", participation_text(summary)),
        ("calls that led to a folded update", percent_text(folded / called if called else None)),
    ]
    drawn = rounds_differ(rounds) or clients_differ(clients)
    return ReportSection(
        "Participation", PARTICIPATION, facts, "participation" if drawn else "", points=points
    )


def participation(account: Account) -> Figure:
    """Numbers of called, accepting and folded devices by round, and folded updates per client.

    A panel in which all rounds, or all clients, are alike is left out.
    """
    draws = {}
    if rounds_differ(account.rounds):
        draws[_cohorts] = _COHORTS_IN
    if clients_differ(account.client_totals):
        draws[draw_heat_strip] = strip_height_in(account)
    if not draws:
        return nothing("No difference", "All rounds and all devices are alike.")
    heights = list(draws.values())
    figure = style.new_figure(sum(heights) + _TITLE_IN * len(heights))
    panels = figure.subplots(len(draws), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, draw in zip(panels, draws, strict=True):
        draw(axes, account)
    return figure


def rounds_differ(rounds: pd.DataFrame) -> bool:
    """Whether any two rounds called, or folded, different numbers of devices."""
    return bool((rounds[_COHORT].nunique() > 1).any())


def clients_differ(clients: pd.DataFrame) -> bool:
    """Whether any two clients contributed differently, or only one of them enrolled."""
    return clients["folded"].nunique() > 1 or clients["enrolled_at"].isna().nunique() > 1


def _every_round(rounds: pd.DataFrame) -> str:
    """A sentence on rounds that are all alike."""
    called, accepted, folded = (int(count) for count in rounds[_COHORT].iloc[0])
    which = "Each round" if len(rounds) > 1 else "The only round"
    devices = "device" if called == 1 else "devices"
    return (
        f"{which} called {called:,} {devices}; {accepted:,} accepted the call, and {folded:,} had "
        f"their update folded."
    )


def _cohorts(axes: Axes, account: Account) -> None:
    """Draw called, accepted and folded as bars inside each other, and empty rounds as ticks."""
    rounds = account.rounds.set_index("round")[_COHORT]
    colours = {"called": style.PALE, "accepted": style.LIGHT, "folded": style.BLUE}
    # Updates of earlier calls are no part of the devices called now.
    if outlives_round(account.scenario):
        sent = account.contributions
        own = sent[(sent["outcome"] == "folded") & (sent["call_round"] == sent["round"])]
        mine = own["round"].value_counts().reindex(rounds.index, fill_value=0)
        names = {"folded": "folded, called earlier", "called": "called"}
        bars = rounds.rename(columns=names).assign(**{"folded, called now": mine})
        colours = {"folded, called earlier": style.LIGHT, "folded, called now": style.BLUE}
        size = style.bars(axes, bars, colours)
        style.by_round(axes, rounds["called"], color=style.INK, linewidth=1.2, label="called")
        axes.set_ylim(0, 1.05 * max(1, rounds[["called", "folded"]].to_numpy().max()))
    else:
        size = style.bars(axes, rounds, colours)
    empty = rounds.index[rounds["folded"] == 0]
    if len(empty):
        low = np.full(len(empty), 0.03)  # as a share of the height
        axes.plot(empty, low, "|", color=style.ORANGE, markersize=9, markeredgewidth=1.6,
                  transform=axes.get_xaxis_transform(), label="empty round")  # fmt: skip
    unit = "devices" if size == 1 else f"devices (means of {size} rounds)"
    style.tidy(axes, _finding(account), "round", unit, key=True)
    style.count(axes.yaxis, 5)
    style.key_above(axes)


def _finding(account: Account) -> str:
    rate, enrolled = participation_rate(account), account.enrolled
    if rate is None:
        return "No device has enrolled"
    folded = account.rounds["folded"].mean()
    return f"Participation {percent_text(rate)}: {folded:.3g} of {enrolled:,} devices per round"
