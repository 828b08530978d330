"""The weights of updates by round, and their charts."""

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import number_text, percent_text
from muster.emulator.report.chart import (
    Axis,
    Chart,
    bars,
    by_round,
    means_of,
    over_rounds,
    round_axis,
)

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


def weights(account: Account) -> list[Chart]:
    """Effective size, largest weight, and the sum of weights with its normaliser, over rounds.

    A chart in which all rounds have the same value is left out.
    """
    rounds = weighed(account)
    return [_DRAWN[name](rounds) for name in panels_of(rounds)] if len(rounds) else []


def panels_of(rounds: pd.DataFrame) -> list[str]:
    """The names of the charts that show more than a single value.

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


def _size(rounds: pd.DataFrame) -> Chart:
    sizes = rounds[["folded", "effective_size"]].rename(
        columns={"effective_size": "effective size"}
    )
    layers, size = bars(sizes, {"folded": "pale", "effective size": "blue"})
    share = percent_text(rounds["share"].median())
    finding = f"The effective size was {share} of the folded updates (median of the rounds)"
    y = Axis(f"updates{means_of(size)}", "count", 0.0)
    return over_rounds(finding, layers, y, round_axis(rounds.index))


def _largest(rounds: pd.DataFrame) -> Chart:
    largest = rounds["largest"]
    median, most = ratio_text(largest.median()), ratio_text(largest.max())
    finding = f"Largest weight: {median} × the mean"
    finding += f", {most} × at most" if median != most else ""
    y = Axis("largest over mean weight", low=0.0)
    return over_rounds(finding, [by_round(largest, "blue")], y)


def _sum(rounds: pd.DataFrame) -> Chart:
    layers = [
        by_round(rounds["weight_sum"], "light", "sum of weights", width=4.5),
        by_round(rounds["normaliser"], "ink", "normaliser", width=1.2, dashed=True),
    ]
    ratio = rounds["weight_sum"] / rounds["normaliser"]
    low, high = number_text(ratio.min()), number_text(ratio.max())
    spread = low if low == high else f"{low} to {high}"
    same = ((ratio - 1).abs() < _ROUNDING).all()
    finding = "Divided by the sum" if same else f"Sum over normaliser: {spread}"
    both = rounds[["weight_sum", "normaliser"]].to_numpy()
    log = bool(both.min() > 0 and both.max() > _LOG_FROM * both.min())
    return over_rounds(finding, layers, Axis("weight", low=None if log else 0.0, log=log))


_COLUMNS = {
    "size": ["folded", "effective_size"],
    "largest": ["largest"],
    "sum": ["weight_sum", "normaliser"],
}
_DRAWN = {"size": _size, "largest": _largest, "sum": _sum}


def ratio_text(ratio: float) -> str:
    """For example "1.8", "23"."""
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
