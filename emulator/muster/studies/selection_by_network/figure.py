"""The figures of the study `selection-by-network`; bars are means over the seeds, dots seeds."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.report.style import (
    BLUE,
    INK,
    LIGHT,
    ORANGE,
    count,
    key_above,
    new_figure,
    tidy,
)
from muster.studies.claims import BySeed
from muster.studies.selection_by_network.fleet import FEDIPW, VALLEY

AS_IT_IS = "as it is"

_WIDTH = 0.38


def draw_gaps(
    free: Mapping[str, BySeed], deadline: Mapping[str, BySeed], changes: Mapping[str, BySeed]
) -> Figure:
    """Draw the gap by rule without and with the deadline, and the gap of FedIPW by change."""
    figure = new_figure(4.2)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    waited, hurried = _mean(free, FEDIPW), _mean(deadline, FEDIPW)
    title = f"FedIPW: {waited:.2g} without the deadline, {hurried:.2g} with it"
    tidy(left, title, y="gap / the town's gap", key=True)
    _pairs(left, free, deadline)
    key_above(left)
    tidy(right, "FedIPW, with something changed", key=True)
    shown = {AS_IT_IS: deadline[FEDIPW], **changes}
    _bars(right, range(len(shown)), shown, ORANGE, 2 * _WIDTH)
    _named(right, list(shown))
    return figure


def draw_weights(
    free: Mapping[str, BySeed], deadline: Mapping[str, BySeed], share: float
) -> Figure:
    """Draw the valley's share of the weight by rule, without and with the deadline.

    Args:
        share: the valley's share of the population.
    """
    figure = new_figure(3.8)
    axes = figure.subplots()
    weight = _mean(deadline, FEDIPW)
    title = f"With the deadline FedIPW weighs the valley, {share:.0%} of all, by {weight:.0%}"
    tidy(axes, title, y="the valley's share of the weight", key=True)
    _pairs(axes, free, deadline)
    axes.axhline(share, color=INK, linewidth=1, linestyle="--", label="of the population")
    axes.set_ylim(0, max(1.3 * share, axes.get_ylim()[1]))
    key_above(axes)
    return figure


def draw_prediction(
    runs: Mapping[str, Sequence[tuple[float, float]]], predicted: Callable[[float], float]
) -> Figure:
    """Draw the gap of FedIPW against the valley's weight, a dot for each run.

    Args:
        runs: for each of three kinds of settings, the weight and the gap of every run.
        predicted: the gap that a weight of the valley predicts.
    """
    figure = new_figure(4.2)
    axes = figure.subplots()
    tidy(axes, "The valley's weight explains the gap of FedIPW", x="the valley's weight",
         y="gap / the town's gap", key=True)  # fmt: skip
    at = np.linspace(0, 0.65, 131)
    axes.plot(at, [predicted(x) for x in at], color=INK, linewidth=1, label="(1 - 2w)²")
    for (name, found), colour in zip(runs.items(), (LIGHT, ORANGE, BLUE), strict=True):
        weights, gaps = zip(*found, strict=True) if found else ((), ())
        axes.scatter(weights, gaps, s=22, color=colour, label=name)
    axes.set_ylim(bottom=0)
    key_above(axes)
    return figure


def draw_ends(ends: pd.DataFrame, crowds: pd.DataFrame) -> Figure:
    """Draw folded and late updates by group, and the late share by how many devices take part.

    Args:
        ends: updates per round, `folded` and `late`, indexed by group.
        crowds: a row for each round: how many devices of the valley `came`, and the share of them
            that was `late`.
    """
    figure = new_figure(3.8)
    left, right = figure.subplots(1, 2, width_ratios=[2, 3])
    late = ends["late"] / ends.sum(axis=1)
    tidy(
        left, f"{late[VALLEY]:.0%} of the valley's updates are late", y="updates a round", key=True
    )
    below = np.zeros(len(ends))
    for outcome, colour in (("folded", LIGHT), ("late", ORANGE)):
        left.bar(ends.index, ends[outcome], 0.6, bottom=below, color=colour, label=outcome)
        below += ends[outcome].to_numpy()
    left.margins(x=0.3)
    key_above(left)
    tidy(right, "Late share of the valley by number of devices", y="share that is late",
         x="devices of the valley that take part in a round", key=True)  # fmt: skip
    rounds = crowds.groupby("came")["late"]
    right.scatter(crowds["came"], crowds["late"], s=14, color=ORANGE, alpha=0.3, linewidths=0,
                  label="a round")  # fmt: skip
    right.plot(rounds.mean(), color=BLUE, linewidth=1.6, label="mean of the rounds")
    right.set_ylim(-0.03, 1.03)
    count(right.xaxis)
    key_above(right)
    return figure


def _pairs(axes: Axes, free: Mapping[str, BySeed], deadline: Mapping[str, BySeed]) -> None:
    """Draw two bars for each rule, or one bar if the rule was run only once."""
    rules = list(dict.fromkeys([*deadline, *free]))
    for arm, colour, label, side in (
        (free, LIGHT, "no deadline", -0.5),
        (deadline, ORANGE, "deadline", 0.5),
    ):
        at = [rules.index(rule) + side * _WIDTH for rule in arm]
        _bars(axes, at, arm, colour, _WIDTH, label)
    _named(axes, rules)


def _bars(
    axes: Axes,
    at: "range | list[float]",
    values: Mapping[str, BySeed],
    colour: str,
    width: float,
    label: str = "",
) -> None:
    means = [_mean(values, name) for name in values]
    axes.bar(at, means, width, color=colour, label=label)
    for place, found in zip(at, values.values(), strict=True):
        axes.scatter([place] * len(found), list(found.values()), color=INK, s=10, zorder=3)


def _mean(values: Mapping[str, BySeed], name: str) -> float:
    """The mean over the seeds that have a value."""
    return float(pd.Series(dict(values[name]), dtype="float64").mean())


def _named(axes: Axes, names: list[str]) -> None:
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", rotation_mode="anchor")
