"""The utilities that rational devices fitted: the section, and the figure of chosen devices."""

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report.chart import Axis, Chart, Layer, line
from muster.emulator.report.section import ReportSection, Summary
from muster.emulator.report.willingness import departures, judgements

_CHOSEN = 4
_POINTS = 100
_TIMES = (("early", "light"), ("halfway", "blue"), ("late", "ink"))


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


def utilities(account: Account) -> list[Chart]:
    """Curves of chosen devices, early, halfway and late in the run."""
    every = judgements(account)
    found = every.dropna(subset=["a"])
    if found.empty:
        return []
    weights, largest = told_weights(account), _largest_weight(account)
    return [_curves(client, every, weights, largest) for client in chosen(found)]


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


def _curves(client: str, found: pd.DataFrame, weights: pd.DataFrame, largest: float) -> Chart:
    mine = found[found["client"] == client].set_index("round").sort_index()
    fitted, layers = mine.dropna(subset=["a"]), list[Layer]()
    rounds = fitted.index[np.linspace(0, len(fitted) - 1, len(_TIMES)).round().astype(int)]
    r = np.linspace(0, largest, _POINTS)
    for (name, colour), number in zip(_TIMES, rounds, strict=True):
        curve = fitted.loc[number]
        layers.append(line("line", r, (curve["b"] - curve["a"] * r) * r + curve["c"], colour, name))
        layers.append(line("across", [], [curve["threshold"]], colour, width=1.0, dashed=True))
        later = mine.index[mine.index > number]
        if len(later) and client in weights:
            measured = mine.loc[later[0], "received_accuracy"]
            layers.append(line("dots", [weights.loc[later[0], client]], [measured], colour))
    accepted = f"accepted {int(mine['accepts'].sum())} of {len(mine)}"
    quality = mine["r_squared"].mean()
    told = "" if np.isnan(quality) else f", R² {quality:.2f}"
    x = Axis("weight r in the model", low=0.0, high=largest)
    return Chart(f"{clean(client)}: {accepted}{told}", layers, x, Axis("accuracy", "percent"))
