"""The scenario time of a run's rounds, from its ledger: the time by which views compare runs.

In lockstep the wall seconds of a round say how fast this machine was, so they are never compared.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.common.clock_kinds import is_lockstep

if TYPE_CHECKING:  # pandas takes long to import, and a summary is described without it
    import pandas as pd

    from muster.emulator.records.account import Account


def clock_of(account: "Account") -> Mapping[str, Any]:
    """The table `clock` of the resolved scenario; empty without one."""
    clock = account.scenario.get("clock", {})
    return clock if isinstance(clock, Mapping) else {}


def outlives_round(scenario: Mapping[str, Any]) -> bool:
    """Whether an update may count in a later round than that of its call, as a recorded scenario
    says. All modes in which it may have `max_staleness`. Before there were several modes, the
    setting was a word."""
    mode = scenario.get("server", {}).get("mode")
    return isinstance(mode, Mapping) and "max_staleness" in mode


def lockstep(account: "Account") -> bool:
    return is_lockstep(clock_of(account).get("kind"))


def round_durations(account: "Account") -> "pd.Series":
    """The scenario seconds that each round lasted, by round.

    In lockstep this is the modelled duration: from the opening of the round to that of the next
    one; NaN in a ledger of an earlier muster, which does not have it. On the other clocks it is the
    measured duration, times `clock.scale`.
    """
    rounds = account.rounds.set_index("round")
    durations: pd.Series = (
        rounds["next_s"] - rounds["scenario_s"]
        if lockstep(account)
        else rounds["seconds"] * clock_of(account).get("scale", 1.0)
    )
    return durations


def time_after(account: "Account", round: int) -> float | None:
    """The scenario seconds of all rounds up to this one; None if one of them is not known."""
    spent = round_durations(account)
    seconds = float(spent[spent.index <= round].sum(skipna=False))
    return None if math.isnan(seconds) else seconds


def round_ends(account: "Account") -> "pd.Series":
    """Scenario seconds at which the next version could be used, by round: the opening of the next
    round in lockstep, the end of the round on the other clocks; without rounds before scenario time
    began."""
    rounds = account.rounds.set_index("round")
    if lockstep(account):
        ends: pd.Series = rounds["next_s"].dropna()
        return ends
    return scenario_seconds(account, rounds["closed_at"]).dropna()


def scenario_seconds(account: "Account", at: "pd.Series") -> "pd.Series":
    """UNIX seconds as scenario seconds, on clocks that run; NaN before scenario time began."""
    began = account.run.began_at
    since = at - (math.nan if began is None else began)
    seconds: pd.Series = since * clock_of(account).get("scale", 1.0)
    return seconds
