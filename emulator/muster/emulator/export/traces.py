"""Exports the availability of a run's devices as traces that another scenario can replay."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muster.client.availability.traces import AvailabilityTrace
from muster.common.clock_kinds import is_lockstep
from muster.common.errors import ConfigError
from muster.common.exchange import Reason

if TYPE_CHECKING:
    import pandas as pd

AWAY: Final = frozenset({Reason.OFFLINE, Reason.POWERED_OFF})
"""Reasons in answers of devices that were not available."""


def export_traces(
    answers: "pd.DataFrame", opened_s: Mapping[int, float], period_s: float
) -> dict[str, AvailabilityTrace]:
    """The availability over the rounds of each device that was ever called or absent, by client.

    If a device has no answer in a round, its availability stays as it was. Rounds before its first
    answer count as like that answer. The traces repeat after `period_s`.

    Args:
        answers: table with the columns round, client, decision and reason, as in the ledger.
        opened_s: scenario seconds at which each round opened, by round.

    Raises:
        ValueError: an answer belongs to a round that is not in `opened_s`.
    """
    starts = dict[str, bool]()
    toggles = dict[str, list[float]]()
    heard = answers[answers["decision"] != "silent"]
    columns = heard.sort_values("round")[["round", "client", "decision", "reason"]]
    for round_, client, decision, reason in columns.itertuples(index=False, name=None):
        if round_ not in opened_s:
            raise ValueError(f"expected answers of {len(opened_s)} rounds, found one of {round_}")
        on = decision != "absent" and reason not in AWAY
        toggled = toggles.setdefault(client, [])
        if on != starts.setdefault(client, on) ^ (len(toggled) % 2 == 1):
            toggled.append(opened_s[round_])
    return {
        client: AvailabilityTrace(starts[client], tuple(toggles[client]), period_s)
        for client in toggles
    }


def traces_of_run(folder: Path) -> dict[str, AvailabilityTrace]:
    """The traces of the run in `folder`, in scenario seconds.

    Raises:
        LedgerError: the folder has no ledger that can be read.
        ConfigError: the run has no committed round, or its scenario is not TOML.
    """
    from muster.emulator.records.account import Account

    with Account(folder) as account:
        clock, rounds = account.scenario.get("clock", {}), account.rounds
        if rounds.empty:
            raise ConfigError(f"{folder} has no committed round; there is nothing to export")
        if is_lockstep(clock.get("kind", "rounds")):
            step_s = clock.get("round_s", 60.0)
            # An older ledger does not say when its rounds opened; all were of equal length then.
            opens = rounds["scenario_s"].fillna((rounds["round"] - 1) * step_s)
            ends = rounds["next_s"].fillna(rounds["round"] * step_s)
            opened_s = dict(zip(rounds["round"].astype(int), opens.astype(float), strict=True))
            return export_traces(account.answers, opened_s, float(ends.max()))
        began_at, scale = account.run.began_at, clock.get("scale", 1.0)
        seconds = (rounds[["opened_at", "closed_at"]] - began_at).clip(lower=0) * scale
        opened_s = dict(zip(rounds["round"].astype(int), seconds["opened_at"], strict=True))
        return export_traces(account.answers, opened_s, float(seconds["closed_at"].max()))
