"""The figures of the study `fedipw`."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.report.style import AMBER, BLUE, GREEN, INK, MUTED, ORANGE, new_figure, tidy
from muster.studies.claims import BySeed
from muster.studies.fedipw.two_groups import promised

COLOURS = {
    "fedavg": ORANGE,
    "participation-ipw": AMBER,
    "fedipw": BLUE,
    "oracle-ipw": INK,
    "calibrated": GREEN,
    "on signs": GREEN,
    "on z1 alone": GREEN,
}
"""The colours of the rules: Okabe and Ito's, which colour-blind readers can tell apart."""

_ROUNDING = 1e-12


def draw(
    courses: Mapping[str, pd.DataFrame],
    strengths: Mapping[str, Mapping[float, BySeed]],
    means: Mapping[str, BySeed],
    noises: Mapping[float, BySeed],
    references: Mapping[str, BySeed],
) -> Figure:
    """Draw the four panels.

    Args:
        courses: rule to the gap by round, with a column for each seed.
        strengths: rule and strength of the enrollment bias to the gap by seed.
        means: rule to the gap by seed.
        noises: error of the means to the distance by seed.
        references: rule that does not depend on this error to the distance by seed.
    """
    figure = new_figure(8.0)
    (a, b), (c, d) = figure.subplots(2, 2)
    tidy(a, "A  Loss above the least, over the target", x="round")
    for rule, frame in courses.items():
        if not frame.empty:
            _band(a, frame.index.to_numpy(), frame, rule, steps=True)
    a.set_yscale("log")
    tidy(b, "B  Stronger enrollment bias", x="strength s", y="gap")
    for rule, levels in strengths.items():
        _band(b, np.array(list(levels)), _frame(levels), rule)
    b.legend(frameon=False, fontsize=9, labelcolor=INK, loc="upper left")
    tidy(c, "C  The population by its means", y="gap")
    _bars(c, means)
    tidy(d, "D  Means that are not exact", x="error τ", y="distance to the optimum")
    _band(d, np.array(list(noises)), _frame(noises), "calibrated")
    for rule, values in references.items():
        d.axhline(_mean(values), color=COLOURS[rule], linestyle="--", linewidth=1.2)
        d.annotate(rule, (0.99, _mean(values)), xycoords=("axes fraction", "data"), ha="right",
                   va="bottom", fontsize=8.5, color=COLOURS[rule])  # fmt: skip
    d.set_ylim(bottom=0)
    return figure


def draw_bounds(errors: pd.DataFrame, two_groups: pd.DataFrame) -> Figure:
    """Draw the gaps of part A against their bounds, and those of part E against ε.

    Args:
        errors, two_groups: the tables of these names of `FedIpwMeasures`.
    """
    figure = new_figure(4.2)
    a, e = figure.subplots(1, 2)
    tidy(a, "A  Gap and bound", x="bound ½ε²G²/μ", y="gap")
    wrong = errors[errors["bound"] > _ROUNDING]  # the oracle's weights are right
    for rule, rows in wrong.groupby("rule", sort=False):
        a.scatter(rows["bound"], rows["gap"], color=COLOURS[str(rule)], label=rule, s=22)
    ends = [wrong["bound"].min(), wrong["bound"].max()]
    a.plot(ends, ends, color=MUTED, linewidth=1)
    a.set_xscale("log")
    a.set_yscale("log")
    a.legend(frameon=False, fontsize=9, labelcolor=INK)
    tidy(e, "E  Two groups", x="ε", y="gap")
    epsilon = np.linspace(0, 1, 50)
    e.plot(epsilon, epsilon**2 * promised(1.0), color=MUTED, linewidth=1.2, label="½ε²G²/μ")
    for rule, rows in two_groups.groupby("rule", sort=False):
        colour = COLOURS.get(str(rule), GREEN)
        e.scatter(rows["epsilon"], rows["gap"], color=colour, label=rule, s=22, zorder=3)
    e.legend(frameon=False, fontsize=9, labelcolor=INK)
    return figure


def _frame(levels: Mapping[float, BySeed]) -> pd.DataFrame:
    return pd.DataFrame({level: pd.Series(dict(values)) for level, values in levels.items()}).T


def _band(
    axes: Axes, x: np.ndarray, frame: pd.DataFrame, rule: str, *, steps: bool = False
) -> None:
    """Draw the mean over the seeds, and a band from the lowest to the highest seed.

    Args:
        steps: draw steps, because a value stays as it is until the next `x`.
    """
    colour = COLOURS[rule]
    axes.plot(x, frame.mean(axis=1), color=colour, label=rule, linewidth=1.6,
              drawstyle="steps-post" if steps else "default")  # fmt: skip
    axes.fill_between(x, frame.min(axis=1), frame.max(axis=1), color=colour, alpha=0.15,
                      linewidth=0, step="post" if steps else None)  # fmt: skip


def _bars(axes: Axes, means: Mapping[str, BySeed]) -> None:
    for place, (rule, values) in enumerate(means.items()):
        axes.bar(place, _mean(values), color=COLOURS[rule], width=0.7)
        axes.scatter([place] * len(values), list(values.values()), color=MUTED, s=10, zorder=3)
    axes.set_xticks(range(len(means)), list(means), rotation=20, ha="right")
    axes.set_ylim(bottom=0)


def _mean(values: BySeed) -> float:
    finite = [value for value in values.values() if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan
