"""The scenario time at which devices work and versions are made, from the ledger of a run.

A device works from its call until its update is ready: in lockstep for the modelled duration that
it states, on the other clocks until its update arrives. It works on one assignment at a time, so
the next call that it accepts ends the earlier work, and the end of the last round ends all.
"""

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import lockstep, round_ends, scenario_seconds


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
