"""Versions in time: the section, and the figure of versions and of working devices over time.

A device works from its call until its update is ready: in lockstep for the modelled duration that
it states, on the other clocks until its update arrives. It works on one assignment at a time, so
the next call that it accepts ends the earlier work, and the end of the last round ends all.
"""

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import lockstep, round_ends, scenario_seconds
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


def version_ends(account: Account) -> pd.DataFrame:
    """When versions were made: a row for each version, with its `version`, `scenario_s`, and
    `wall_s`, the seconds since the first round opened."""
    rounds = account.rounds.set_index("round")
    made = rounds[rounds["version"] > rounds["base_version"]]
    return pd.DataFrame(
        {
            "version": made["version"],
            "scenario_s": round_ends(account).reindex(made.index),
            "wall_s": made["closed_at"] - rounds["opened_at"].min(),
        }
    )


def working_times(account: Account) -> pd.DataFrame:
    """The times at which devices worked: `client`, `begin_s` and `end_s` in scenario seconds.

    It is empty if the scenario models no duration in lockstep, or has no scenario time.
    """
    ends = round_ends(account)
    work = _modelled(account) if lockstep(account) else _measured(account)
    work = work.dropna().sort_values(["client", "begin_s"])
    next_s = work.groupby("client")["begin_s"].shift(-1)
    work["end_s"] = np.fmin(np.fmin(work["end_s"], next_s), ends.max())
    spent = work[work["end_s"] > work["begin_s"]].reset_index(drop=True)
    return spent


def _modelled(account: Account) -> pd.DataFrame:
    answers = account.work
    begin = answers["round"].map(account.rounds.set_index("round")["scenario_s"])
    end = begin + answers["modelled_s"]
    return pd.DataFrame({"client": answers["client"], "begin_s": begin, "end_s": end})


def _measured(account: Account) -> pd.DataFrame:
    sent = account.contributions
    first = sent[sent["outcome"] != "duplicate"].groupby(["call_round", "client"])["at"].min()
    table = first.reset_index()
    begin = table["call_round"].map(account.rounds.set_index("round")["scenario_s"])
    end = scenario_seconds(account, table["at"])
    return pd.DataFrame({"client": table["client"], "begin_s": begin, "end_s": end})


def working_shares(account: Account) -> pd.Series:
    """The share of the run's scenario time in which the enrolled devices of each group worked, and
    that of all devices, the last entry "all"; empty if it is not known."""
    work, ends = working_times(account), round_ends(account)
    begin_s = float(account.rounds["scenario_s"].min())
    clients = account.clients[account.clients["enrolled_at"].notna()]
    if work.empty or clients.empty or not ends.max() > begin_s:
        return pd.Series(dtype="float64")
    spent = (work["end_s"] - work["begin_s"]).groupby(work["client"]).sum()
    shares = clients["client"].map(spent).fillna(0.0) / (ends.max() - begin_s)
    by_group: pd.Series = shares.groupby(clients["group"], sort=False).mean()
    by_group.loc["all"] = shares.mean()
    return by_group


def working_course(account: Account, clients: pd.Series, edges: np.ndarray) -> np.ndarray:
    """The mean number of `clients` that worked in each bin of scenario seconds, shape (bins,)."""
    work = working_times(account)
    work = work[work["client"].isin(clients)]
    begin, end = work["begin_s"].to_numpy(), work["end_s"].to_numpy()
    # The time worked until an edge is the sum over all works of the part that lies before it.
    until = np.array([np.clip(edge - begin, 0, end - begin).sum() for edge in edges])
    return np.asarray(np.diff(until) / np.diff(edges), np.float64)
