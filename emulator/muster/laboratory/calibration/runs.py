"""Reads the recorded rounds of runs on the wall clock."""

from pathlib import Path

import numpy as np
import pandas as pd

from muster.common.errors import ConfigError
from muster.emulator.records.account import Account
from muster.emulator.records.manifest import intact_folder
from muster.emulator.records.scenario_time import clock_of, lockstep, outlives_round
from muster.emulator.report.training_times import examples_seen, modelled_training
from muster.laboratory.calibration.recorded import WORK, RecordedRounds

_KEY = ["round", "client"]


def recorded_in_run(path: Path) -> RecordedRounds:
    """The rounds of a run.

    Raises:
        ConfigError: there is no such run, or its durations do not say how long devices need.
        LedgerError: its ledger is damaged.
    """
    with Account(intact_folder(path)) as account:
        _require_measured(account, path)
        return _of_run(account, path)


def _require_measured(account: Account, path: Path) -> None:
    if lockstep(account):
        raise ConfigError(
            f"{path} ran in lockstep, where devices do not take the time that the scenario gives "
            f"them, so there is nothing to fit; expected a run with clock.kind = 'wall'"
        )
    if clock_of(account).get("scale", 1.0) != 1.0:
        raise ConfigError(
            f"{path} ran on a scaled clock, of which a transfer takes another part than training; "
            f"expected a run with clock.kind = 'wall'"
        )
    if outlives_round(account.scenario):
        raise ConfigError(
            f"{path} ran in a mode in which work outlives its round, so no round has a time that "
            f"follows from its devices; expected a run in the synchronous mode"
        )


def _of_run(account: Account, path: Path) -> RecordedRounds:
    sent = account.contributions
    counted = sent[(sent["outcome"] == "folded") & (sent["examples"] > 0)]
    if counted.empty:
        raise ConfigError(f"{path} has no update that counted; expected a run with rounds")
    rounds = account.rounds.set_index("round")
    work = (
        counted.drop(columns=["bytes_down", "bytes_up"])
        .join(_transfers(account, "down"), on=_KEY)
        .join(_transfers(account, "up"), on=_KEY)
        .join(account.answers.set_index(_KEY)["at"].rename("answered_at"), on=_KEY)
    )
    client = work["client"]
    opened_at = work["round"].map(rounds["opened_at"])
    # An update that came in no transfer came in the answer.
    ended_at = work["up_ended_at"].fillna(work["answered_at"])
    trained_s = work["up_began_at"].fillna(ended_at) - work["down_ended_at"].fillna(opened_at)
    modelled = client.isin(modelled_training(account).index)
    found = pd.DataFrame(
        {
            "device": client,
            "group": client.map(account.clients.set_index("client")["group"]),
            "round": work["round"],
            "examples": client.map(examples_seen(account)),
            # A device with a modelled speed sleeps until its modelled training is over.
            "train_s": work["train_s"].where(~modelled, trained_s),
            "bytes_down": work["bytes_down"].fillna(0.0),
            "down_s": work["down_s"].fillna(0.0),
            "bytes_up": work["bytes_up"].fillna(0.0),
            "up_s": work["up_s"].fillna(0.0),
            "work_s": ended_at - opened_at,
        }
    )
    usable = (found["train_s"] > 0) & (found["work_s"] > 0) & (found["examples"] > 0)
    whole = rounds[(rounds["folded"] > 0) & (rounds["folded"] == rounds["accepted"])]
    notes = []
    if others := len(sent) - len(counted):
        notes.append(f"{others:,} updates of {path} did not count, and are left out")
    if ended := len(rounds) - len(whole):
        notes.append(
            f"{ended:,} rounds of {path} did not end with the last update of those who accepted, "
            f"and their times are left out"
        )
    return RecordedRounds(
        found.loc[usable, [*WORK]].reset_index(drop=True), whole["seconds"], notes
    )


def _transfers(account: Account, direction: str) -> pd.DataFrame:
    """The transfers in a direction by round and client: bytes, seconds, begin and end."""
    moved = account.transfers
    moved = moved[(moved["direction"] == direction) & (moved["bytes"] > 0)]
    ended_at = moved["began_at"] + moved["wait_s"] + moved["seconds"]
    totals = (
        moved.assign(ended_at=ended_at)
        .groupby(_KEY)
        .agg(
            **{
                f"bytes_{direction}": ("bytes", "sum"),
                f"{direction}_s": ("seconds", "sum"),
                f"{direction}_began_at": ("began_at", "min"),
                f"{direction}_ended_at": ("ended_at", "max"),
            }
        )
    )
    return totals.astype(np.float64)
