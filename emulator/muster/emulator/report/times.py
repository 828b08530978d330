"""Time: the section, and the figure of rounds, training and transfers."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import lockstep
from muster.emulator.records.summary import seconds_text
from muster.emulator.report.chart import Axis, Chart, bars, line, means_of, over_rounds, round_axis
from muster.emulator.report.section import ReportSection, Summary
from muster.emulator.report.training_times import (
    MODELLED,
    ON_THIS_MACHINE,
    modelled_training,
    spent_training,
)

_SHORT_S = 1e-3  # shorter times are noise of the clock, and would stretch the axis


@dataclass(frozen=True)
class Spent:
    """The seconds that updates spent on one thing.

    Attributes:
        what: the beginning of a title.
        seconds: seconds by update.
        whose: `ON_THIS_MACHINE` or `MODELLED`.
    """

    what: str
    seconds: pd.Series
    whose: str
    colour: str

    @property
    def varies(self) -> bool:
        """Whether there is a distribution to draw."""
        spread = self.seconds.clip(lower=_SHORT_S)
        return bool(spread.nunique() > 1)

    @property
    def sentence(self) -> str:
        """What the figure would show, if it does not vary."""
        if self.seconds.empty:
            return f"{self.what}: no update reported how long it took."
        if self.seconds.max() < _SHORT_S:
            return f"{self.what}: under a millisecond for every update, {self.whose}."
        return f"{self.what}: {seconds_text(self.seconds.iloc[0])} for every update, {self.whose}."


def section(account: Account, summary: Summary) -> ReportSection:
    """What the times mean, and the figure of those that vary."""
    training, transfer = _spent(account)
    points = [spent.sentence for spent in (training, transfer) if not spent.varies]
    seconds = account.rounds["seconds"]
    if seconds.nunique() == 1:
        which = "The only round" if len(seconds) == 1 else "Every round"
        points.insert(0, f"{which} took {seconds_text(seconds.iloc[0])} {ON_THIS_MACHINE}.")
    drawn = training.varies or transfer.varies or seconds.nunique() > 1
    text = _meaning(account, training.whose)
    return ReportSection("Time", text, figure="time" if drawn else "", points=points)


def _meaning(account: Account, whose: str) -> str:
    modelled = whose == MODELLED
    if modelled:
        text = (
            "Training is the time that the modelled devices need: the examples that they see, "
            "divided by `device.examples_per_s`. The time of rounds and transfers was measured on "
            "this machine."
        )
        if len(modelled_training(account)) < len(account.clients):
            text += " Devices of groups that model no speed are left out of the training times."
    else:
        text = (
            "All times were measured on this machine. The scenario does not model how long devices "
            "train (`device.examples_per_s`)."
        )
    if modelled and lockstep(account):
        return f"{text} In lockstep, a round does not really wait for the modelled time."
    return (
        f"{text} A round lasts until its commit: it waits for updates, and at times for the "
        f"evaluation of earlier versions."
    )


def time(account: Account) -> list[Chart]:
    """Seconds per round, and the distributions of the updates' training and transfer times.

    What would show a single value is left out.
    """
    spent = [one for one in _spent(account) if one.varies]
    several = account.rounds["seconds"].nunique() > 1
    rounds = [_round_seconds(account)] if several else []
    return [*rounds, *(_spread(one, _edges(one, spent)) for one in spent)]


def _spent(account: Account) -> tuple[Spent, Spent]:
    """Training and transfer."""
    training, whose = spent_training(account)
    sent = account.contributions
    transfer = sent.loc[sent["examples"] > 0, "transfer_s"].dropna()
    what = "Modelled training" if whose == MODELLED else "Training"
    return (
        Spent(what, training, whose, "blue"),
        Spent("Transfer", transfer, ON_THIS_MACHINE, "orange"),
    )


def _round_seconds(account: Account) -> Chart:
    rounds = account.rounds.set_index("round")[["seconds"]]
    layers, size = bars(rounds, {"seconds": "light"})
    median, most = rounds["seconds"].median(), rounds["seconds"].max()
    finding = f"A round took {seconds_text(median)} (median), {seconds_text(most)} at most"
    y = Axis(f"seconds {ON_THIS_MACHINE}{means_of(size)}", low=0.0)
    return over_rounds(finding, layers, y, round_axis(rounds.index))


def _edges(one: Spent, every: list[Spent]) -> np.ndarray:
    """The edges of bins, the same for all times of the same clock; logarithmic for a wide range."""
    values = np.concatenate([other.seconds for other in every if other.whose == one.whose])
    values = values[values >= _SHORT_S]
    low, high = values.min(), values.max()
    if high > 20 * low:
        return np.geomspace(low, high, 41)
    return np.linspace(0, 1.1 * high, 41)


def _spread(spent: Spent, edges: np.ndarray) -> Chart:
    """A histogram of the seconds."""
    counts, _ = np.histogram(spent.seconds.clip(edges[0], edges[-1]), edges)
    median, most = spent.seconds.quantile([0.5, 0.95])
    finding = f"{spent.what}: median {seconds_text(median)}, 95 % under {seconds_text(most)}"
    layers = [line("filled", edges, counts, spent.colour, opacity=0.8)]
    x = Axis(f"seconds {spent.whose}", low=edges[0], high=edges[-1], log=bool(edges[0] > 0))
    return Chart(finding, layers, x, Axis("updates", "count", 0.0))
