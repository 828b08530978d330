"""Participation: the section, and the charts of called and folded devices by round and client."""

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import outlives_round
from muster.emulator.records.summary import (
    PARTICIPATION,
    participation_rate,
    participation_text,
    percent_text,
)
from muster.emulator.report.chart import (
    MOST_POINTS,
    Axis,
    Chart,
    Layer,
    bars,
    by_round,
    line,
    means_of,
    over_rounds,
    round_axis,
)
from muster.emulator.report.heat_strip import heat_strip, heat_strip_finding
from muster.emulator.report.section import ReportSection, Summary

_COHORT = ["called", "accepted", "folded"]


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


def participation(account: Account) -> list[Chart]:
    """Numbers of called, accepting and folded devices by round, and folded updates per client.

    A chart in which all rounds, or all clients, are alike is left out.
    """
    rounds = [_cohorts(account)] if rounds_differ(account.rounds) else []
    clients = account.client_totals
    return [*rounds, *([heat_strip(clients)] if clients_differ(clients) else [])]


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


def _cohorts(account: Account) -> Chart:
    """Called, accepted and folded as bars inside each other, and empty rounds as dots."""
    rounds = account.rounds.set_index("round")[_COHORT]
    if outlives_round(
        account.scenario
    ):  # updates of earlier calls are not a part of the devices called now
        layers, size = _carried(account, rounds)
    else:
        layers, size = bars(rounds, {"called": "pale", "accepted": "light", "folded": "blue"})
    if len(empty := rounds.index[rounds["folded"] == 0][:MOST_POINTS]):
        layers.append(line("dots", empty, np.zeros(len(empty)), "orange", "empty round"))
    y = Axis(f"devices{means_of(size)}", "count", 0.0)
    return over_rounds(_finding(account), layers, y, round_axis(rounds.index))


def _carried(account: Account, rounds: pd.DataFrame) -> tuple[list[Layer], int]:
    sent = account.contributions
    own = sent[(sent["outcome"] == "folded") & (sent["call_round"] == sent["round"])]
    mine = own["round"].value_counts().reindex(rounds.index, fill_value=0)
    folded = pd.DataFrame({"folded, called earlier": rounds["folded"], "folded, called now": mine})
    colours = {"folded, called earlier": "light", "folded, called now": "blue"}
    layers, size = bars(folded, colours)
    return [*layers, by_round(rounds["called"], "ink", "called", width=1.2)], size


def _finding(account: Account) -> str:
    rate, enrolled = participation_rate(account), account.enrolled
    if rate is None:
        return "No device has enrolled"
    folded = account.rounds["folded"].mean()
    return f"Participation {percent_text(rate)}: {folded:.3g} of {enrolled:,} devices per round"
