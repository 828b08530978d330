"""The weights of updates by round, and their figure."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.records.account import Account
from muster.emulator.records.summary import number_text, percent_text
from muster.emulator.report import style
from muster.emulator.report.timeline import nothing

_ROUNDING = 1e-6
_LOG_FROM = 100


def weighed(account: Account) -> pd.DataFrame:
    """The rounds that folded an update with a positive weight, indexed by round.

    Columns: `folded`; `effective_size`, the number of equally weighted updates that would average
    out noise as well; `share`, the effective size divided by `folded`; `largest`, the largest
    weight divided by the mean weight; `weight_sum`; `normaliser`.
    """
    rounds = account.rounds.set_index("round")
    rounds = rounds[(rounds["folded"] > 0) & (rounds["weight_sum"] > 0)]
    found = rounds[["folded", "effective_size", "weight_sum", "normaliser"]].copy()
    found["share"] = found["effective_size"] / found["folded"]
    found["largest"] = rounds["weight_max"] * rounds["folded"] / rounds["weight_sum"]
    return found


def weights_differ(account: Account) -> bool:
    """Whether any two updates of the same round had different weights."""
    return bool((weighed(account)["largest"] > 1 + _ROUNDING).any())


def weights(account: Account) -> Figure:
    """Effective size, largest weight, and the sum of weights with its normaliser, over rounds.

    A panel in which all rounds have the same value is left out.
    """
    rounds = weighed(account)
    if rounds.empty:
        return nothing("No weights", "No update was folded.")
    names = panels_of(rounds)
    if not names:
        return nothing("No difference", "All rounds weighed their updates alike.")
    first, *others = names
    figure = style.new_figure(4.6 if others else 2.3)
    grid = figure.add_gridspec(2 if others else 1, max(1, len(others)))
    _DRAWN[first](figure.add_subplot(grid[0, :]), rounds)
    for place, name in enumerate(others):
        _DRAWN[name](figure.add_subplot(grid[1, place]), rounds)
    return figure


def panels_of(rounds: pd.DataFrame) -> list[str]:
    """The names of the panels that show more than a single value.

    Args:
        rounds: from `weighed`.
    """
    return [name for name, columns in _COLUMNS.items() if _varies(rounds[columns])]


def single_values(rounds: pd.DataFrame) -> list[str]:
    """Sentences that state what the figure leaves out, because all rounds have the same value.

    Args:
        rounds: from `weighed`.
    """
    if rounds.empty:
        return []
    folded, size, total, normaliser, _, largest = rounds.iloc[0]
    said = {
        "size": f"Every round that counts folded {folded:,.0f} updates, and their effective size "
        f"was {number_text(size)}.",
        "largest": f"The largest weight was {ratio_text(largest)} × the mean in every such round.",
        "sum": f"The weights of every such round added up to {number_text(total)}, and the "
        f"normaliser was {number_text(normaliser)}.",
    }
    drawn = panels_of(rounds)
    return [sentence for name, sentence in said.items() if name not in drawn]


def _varies(rounds: pd.DataFrame) -> bool:
    spread, size = rounds.max() - rounds.min(), rounds.abs().max()
    return bool((spread > _ROUNDING * size).any())


def _size(axes: Axes, rounds: pd.DataFrame) -> None:
    sizes = rounds[["folded", "effective_size"]].rename(
        columns={"effective_size": "effective size"}
    )
    size = style.bars(axes, sizes, {"folded": style.PALE, "effective size": style.BLUE})
    share = percent_text(rounds["share"].median())
    finding = f"The effective size was {share} of the folded updates (median of the rounds)"
    unit = "updates" if size == 1 else f"updates (means of {size} rounds)"
    style.tidy(axes, finding, "round", unit, key=True)
    style.count(axes.yaxis, 5)
    style.key_above(axes)


def _largest(axes: Axes, rounds: pd.DataFrame) -> None:
    largest = rounds["largest"]
    style.by_round(axes, largest, color=style.BLUE, linewidth=1.4)
    median, most = ratio_text(largest.median()), ratio_text(largest.max())
    finding = f"Largest weight: {median} × the mean"
    finding += f", {most} × at most" if median != most else ""
    style.tidy(axes, finding, "round", "largest over mean weight", key=True)
    style.count(axes.xaxis, 5)
    axes.set_ylim(0, None)


def _sum(axes: Axes, rounds: pd.DataFrame) -> None:
    style.by_round(axes, rounds["weight_sum"], color=style.LIGHT, linewidth=4.5,
                   label="sum of weights")  # fmt: skip
    style.by_round(axes, rounds["normaliser"], color=style.INK, linewidth=1.2, linestyle="--",
                   label="normaliser")  # fmt: skip
    ratio = rounds["weight_sum"] / rounds["normaliser"]
    low, high = number_text(ratio.min()), number_text(ratio.max())
    spread = low if low == high else f"{low} to {high}"
    same = ((ratio - 1).abs() < _ROUNDING).all()
    finding = "Divided by the sum" if same else f"Sum over normaliser: {spread}"
    style.tidy(axes, finding, "round", "weight", key=True)
    style.count(axes.xaxis, 5)
    both = rounds[["weight_sum", "normaliser"]].to_numpy()
    if both.min() > 0 and both.max() > _LOG_FROM * both.min():
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)
    style.key_above(axes)


_COLUMNS = {
    "size": ["folded", "effective_size"],
    "largest": ["largest"],
    "sum": ["weight_sum", "normaliser"],
}
_DRAWN = {"size": _size, "largest": _largest, "sum": _sum}


def ratio_text(ratio: float) -> str:
    """For example "1.8", "23"."""
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
