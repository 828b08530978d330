"""The figure of the study `usual-rules`; circles are means over the seeds, dots seeds."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.report.style import BLUE, INK, ORANGE, key_above, new_figure, tidy
from muster.studies.claims import BySeed
from muster.studies.usual_rules.fleet import ALL_COME, ONE_COMES


def draw_bias(
    biases: Mapping[str, Mapping[str, BySeed]], predicted: Mapping[str, Mapping[str, BySeed]]
) -> Figure:
    """Draw the bias of every rule, by part.

    Args:
        biases, predicted: part to rule to the bias, by seed; a bias that is not known is NaN.
    """
    rules = list(biases[ALL_COME])
    figure = new_figure(1.2 + 0.3 * len(rules))
    axes = figure.subplots()
    tidy(axes, "Most rules follow the devices that come", key=True,
         x="0: the optimum of all devices; 1: the optimum of those that always come")  # fmt: skip
    for at in (0, 1):
        axes.axvline(at, color=INK, linewidth=1, linestyle="--")
    for part, colour in ((ALL_COME, BLUE), (ONE_COMES, ORANGE)):
        _points(axes, rules, biases[part], colour, part)
        _computed(axes, rules, predicted[part], "computed" if part == ONE_COMES else "")
    axes.set_yticks(range(len(rules)), rules)
    axes.invert_yaxis()
    key_above(axes)
    return figure


def _points(
    axes: Axes, rules: list[str], biases: Mapping[str, BySeed], colour: str, label: str
) -> None:
    for place, rule in enumerate(rules):
        seeds = list(biases[rule].values())
        axes.scatter(seeds, [place] * len(seeds), color=colour, s=8, alpha=0.5, linewidths=0)
    means = [np.mean(list(biases[rule].values())) for rule in rules]
    axes.scatter(means, range(len(rules)), color=colour, s=42, label=label, zorder=3)


def _computed(axes: Axes, rules: list[str], predicted: Mapping[str, BySeed], label: str) -> None:
    means = [np.mean(list(predicted[rule].values())) for rule in rules]
    axes.scatter(means, range(len(rules)), color=INK, marker="|", s=160, label=label, zorder=4)
