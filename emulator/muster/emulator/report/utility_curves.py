"""The utilities that rational devices fitted: the section, and the figure of chosen devices."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report import style
from muster.emulator.report.names import drawable
from muster.emulator.report.section import ReportSection, Summary
from muster.emulator.report.timeline import key, nothing
from muster.emulator.report.willingness import departures, judgements

_CHOSEN = 4
_POINTS = 100
_TIMES = (("early", style.LIGHT), ("halfway", style.BLUE), ("late", style.INK))


def section(account: Account, summary: Summary) -> ReportSection | None:
    """The figure, and how well the fits describe the utilities; None if no device fitted one."""
    found = judgements(account)
    if not found["a"].notna().any():
        return None
    text = (
        "The utility u(r) = −a·r² + b·r + c that chosen devices fitted to the accuracy of a model "
        "in which they weigh r, from those that accepted least to those that accepted most. "
        "Dashed: the threshold γ that they reported with it. Dots: the accuracy that they measured "
        "in the round after, at the weight α that they were told. A dot far from its curve shows "
        "that the model of the others changed, or that the fit is poor."
    )
    errors = (found["fitted_utility"] - found["received_accuracy"]).abs()
    facts = [("devices with a utility", f"{found.loc[found['a'].notna(), 'client'].nunique():,}")]
    if errors.notna().any():
        facts.append(("median error at α", f"{100 * errors.median():.1f} points"))
    if found["r_squared"].notna().any():
        facts.append(("mean R² of the fits", f"{found['r_squared'].mean():.2f}"))
    return ReportSection("Utility curves", text, facts, "utilities")


def utilities(account: Account) -> Figure:
    """Curves of chosen devices, early, halfway and late in the run."""
    every = judgements(account)
    found = every.dropna(subset=["a"])
    if found.empty:
        return nothing("No utility", "No device fitted a utility.")
    clients = chosen(found)
    columns = min(2, len(clients))
    figure = style.new_figure(2.9 * -(-len(clients) // columns) + 0.4)
    panels = figure.subplots(-(-len(clients) // columns), columns, sharey=True, squeeze=False)
    weights = told_weights(account)
    largest = _largest_weight(account)
    for axes, client in zip(panels.flat, clients, strict=False):
        _curves(axes, client, every, weights, largest)
    for axes in panels.flat[len(clients) :]:
        axes.set_axis_off()
    for axes in panels[-1]:
        axes.set_xlabel("weight r in the model", color=style.MUTED, fontsize=9.5)
    key(figure, panels.flat[0].get_legend_handles_labels()[0])
    return figure


def chosen(found: pd.DataFrame) -> list[str]:
    """At most four devices, evenly spread from those that accepted least to those that did most."""
    names = departures(found).sort_values(["accepted", "client"]).index
    places = np.linspace(0, len(names) - 1, min(_CHOSEN, len(names))).round().astype(int)
    return [str(names[place]) for place in places]


def told_weights(account: Account) -> pd.DataFrame:
    """The weight that each device was told with the call of a round, shape (rounds, devices).

    It is α of the newest version when the round opened; NaN in rounds before the first estimate.
    """
    rows = account.estimates
    alpha = rows[rows["name"] == "alpha"].pivot(index="round", columns="key", values="value")
    return alpha.reindex(account.rounds["round"]).ffill().shift(1)


def _largest_weight(account: Account) -> float:
    """The largest weight at which any group measures utilities."""
    groups = account.scenario.get("groups", [])
    utilities = [group.get("participation", {}).get("utility") or {} for group in groups]
    return max((float(each.get("largest_weight", 1.0)) for each in utilities), default=1.0)


def _curves(
    axes: Axes, client: str, found: pd.DataFrame, weights: pd.DataFrame, largest: float
) -> None:
    mine = found[found["client"] == client].set_index("round").sort_index()
    fitted = mine.dropna(subset=["a"])
    rounds = fitted.index[np.linspace(0, len(fitted) - 1, len(_TIMES)).round().astype(int)]
    r = np.linspace(0, largest, _POINTS)
    for (name, colour), number in zip(_TIMES, rounds, strict=True):
        curve = fitted.loc[number]
        axes.plot(r, (curve["b"] - curve["a"] * r) * r + curve["c"], color=colour, linewidth=1.6,
                  label=name)  # fmt: skip
        axes.axhline(curve["threshold"], color=colour, linewidth=1, linestyle=style.DASHES)
        later = mine.index[mine.index > number]
        if len(later) and client in weights:
            measured = mine.loc[later[0], "received_accuracy"]
            axes.plot(weights.loc[later[0], client], measured, "o", color=colour, markersize=5)
    accepted = f"accepted {int(mine['accepts'].sum())} of {len(mine)}"
    quality = mine["r_squared"].mean()
    told = "" if np.isnan(quality) else f", R² {quality:.2f}"
    style.tidy(axes, f"{drawable(clean(client))}: {accepted}{told}", "", "accuracy")
    axes.set_xlim(0, largest)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
