"""The figure of whom the model represents: a panel for each covariate, with all stages."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report import style
from muster.emulator.report.balance import (
    ENROLLED,
    PARTICIPATING,
    POPULATION,
    STAGES,
    WEIGHTED,
    Covariate,
    covariates_of,
    signed_text,
)
from muster.emulator.report.intervals import Floats
from muster.emulator.report.names import drawable, wrapped
from muster.emulator.report.timeline import key, nothing

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        POPULATION: style.PALE,
        ENROLLED: "#9aa5b1",
        PARTICIPATING: style.ORANGE,
        WEIGHTED: style.BLUE,
    }
)

MOST_PANELS = 12

_COLUMNS, _PANEL_IN, _AROUND_IN = 3, 1.9, 0.5
_MOST_LEVELS, _LETTERS = 5, 32
_TAIL = 0.005
_BINS = 200
# If weights change nothing, the lines coincide; with different widths, both are still visible.
_WIDTHS = {ENROLLED: 1.0, PARTICIPATING: 3.2, WEIGHTED: 1.4}
_FILLS = {POPULATION: style.PALE, ENROLLED: "#eceff2"}


def balance(account: Account) -> Figure:
    """The distribution of each covariate, from the population to the weighted updates."""
    panels = _panels(covariates_of(account))
    if not panels:
        return nothing("No covariate", "The scenario has none in groups.covariates.")
    shown = _worst(panels)
    columns = min(len(shown), 2 if len(shown) == 4 else _COLUMNS)
    rows = math.ceil(len(shown) / columns)
    figure = style.new_figure(_AROUND_IN + rows * _PANEL_IN)
    cells = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes, panel in zip(cells, shown, strict=False):
        (_levels if _has_levels(panel) else _course)(axes, panel)
        style.tidy(axes, _finding(panel))
    for axes in cells[len(shown) :]:
        axes.set_axis_off()
    note = (
        "Titles: standardised mean difference to the population (for X: to the enrolled), "
        "participating → weighted"
    )
    if len(panels) > len(shown):
        note += f"\nThe {len(shown)} of {len(panels)} covariates most out of balance are shown"
    figure.supxlabel(note, x=0.01, ha="left", fontsize=9, color=style.MUTED)
    key(figure, _handles([one for panel in shown for one in panel]))
    return figure


def _panels(covariates: Sequence[Covariate]) -> list[list[Covariate]]:
    """Group the columns by covariate: a numeric covariate has one, a categorical one per level."""
    panels: dict[tuple[str, str], list[Covariate]] = {}
    for covariate in covariates:
        panels.setdefault((covariate.kind, covariate.of), []).append(covariate)
    return list(panels.values())


def _worst(panels: Sequence[Sequence[Covariate]]) -> list[Sequence[Covariate]]:
    """The panels most out of balance, in their original order."""
    order = sorted(range(len(panels)), key=lambda place: -_size(_most(panels[place])))
    return [panels[place] for place in sorted(order[:MOST_PANELS])]


def _most(panel: Sequence[Covariate]) -> Covariate:
    """The column furthest out of balance."""
    return max(panel, key=_size)


def _size(covariate: Covariate) -> float:
    return float(np.nan_to_num(abs(covariate.difference(PARTICIPATING))))


def _has_levels(panel: Sequence[Covariate]) -> bool:
    return panel[0].is_level or len(np.unique(panel[0].values)) <= _MOST_LEVELS


def _levels(axes: Axes, panel: Sequence[Covariate]) -> None:
    """Draw bars for the levels of a categorical covariate, or for the few values of a number."""
    names, shares = _shares(panel)
    stages = [stage for stage in STAGES if not np.isnan(shares[stage]).all()]
    width = 0.8 / len(stages)
    for place, stage in enumerate(stages):
        left = np.arange(len(names)) - 0.4 + place * width
        axes.bar(left, shares[stage], width, align="edge", color=COLOURS[stage])
    axes.set_xticks(range(len(names)), names, parse_math=False)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))


def _shares(panel: Sequence[Covariate]) -> tuple[list[str], dict[str, Floats]]:
    """The names of the levels and their shares by stage; of many levels, the most frequent."""
    first = panel[0]
    if first.is_level:
        least = sorted((_share(column) for column in panel), reverse=True)[:_MOST_LEVELS][-1]
        panel = [column for column in panel if _share(column) >= least][:_MOST_LEVELS]
        names = [column.name.partition("=")[2] for column in panel]
        means = {s: np.array([column.means[s] for column in panel]) for s in STAGES}
    else:
        levels = np.unique(first.values)
        names = [f"{level:.3g}" for level in levels]
        means = {}
        for stage in STAGES:
            weights = first.weights.get(stage, np.zeros(len(first.values)))
            total = weights.sum() or math.nan
            means[stage] = np.array([weights[first.values == v].sum() / total for v in levels])
    return [wrapped(clean(name), _LETTERS // len(names)) for name in names], means


def _share(level: Covariate) -> float:
    return float(np.nan_to_num(level.target))


def _course(axes: Axes, panel: Sequence[Covariate]) -> None:
    """Draw the distribution of a number as outlines, and that of the reference as a filled area."""
    (covariate,) = panel
    edges = bin_edges(covariate.values)
    grid, kernel = (edges[:-1] + edges[1:]) / 2, smoothing_kernel(covariate, edges)
    for stage in STAGES:
        weights = covariate.weights.get(stage)
        if weights is None or not weights.any():
            continue
        course = smoothed_shares(covariate.values, weights, edges, kernel)
        if stage == covariate.reference:
            axes.fill_between(grid, course, color=_FILLS[stage], linewidth=0)
        if stage != POPULATION:
            axes.plot(grid, course, color=COLOURS[stage], linewidth=_WIDTHS[stage])
    if covariate.kind == "Z" and covariate.reference != POPULATION:
        axes.axvline(covariate.target, color=style.INK, linewidth=1.2, linestyle=style.DASHES)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, None), yticks=[])
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def bin_edges(values: Floats) -> Floats:
    """The edges of narrow bins without the tails, which would stretch the axis."""
    low, high = np.quantile(values, [_TAIL, 1 - _TAIL])
    if low == high:  # only the tails differ
        low, high = values.min(), values.max()
    return np.linspace(low, high, _BINS + 1)


def smoothing_kernel(covariate: Covariate, edges: Floats) -> Floats:
    """The kernel that smooths the histograms, the same for all stages so that they compare."""
    sizes = (weights.sum() ** 2 / (weights @ weights) for weights in covariate.weights.values()
             if weights.any())  # fmt: skip
    within = covariate.values[(covariate.values >= edges[0]) & (covariate.values <= edges[-1])]
    low, high = np.quantile(within, [0.25, 0.75])
    spread = min(within.std(), (high - low) / 1.34) or within.std()
    # Silverman's rule (Density Estimation for Statistics and Data Analysis, 1986, equation 3.31).
    width = max(1.0, 0.9 * spread * min(sizes) ** -0.2 / (edges[1] - edges[0]))
    kernel = np.exp(-0.5 * (np.arange(-_BINS, _BINS + 1) / width) ** 2)
    return np.asarray(kernel / kernel.sum(), np.float64)


def smoothed_shares(values: Floats, weights: Floats, edges: Floats, kernel: Floats) -> Floats:
    """A smoothed histogram as shares, shape (bins,)."""
    shares = np.histogram(values, edges, weights=weights)[0] / weights.sum()
    # Mass beyond the ends is reflected. Otherwise a limit such as a charge of 1 would look rarer.
    return np.convolve(np.pad(shares, _BINS, mode="symmetric"), kernel, "valid")


def _finding(panel: Sequence[Covariate]) -> str:
    worst = _most(panel)
    name = drawable(clean(worst.name), 18)
    if math.isnan(worst.difference(PARTICIPATING)):
        return name
    raw, weighted = (signed_text(worst.difference(stage)) for stage in (PARTICIPATING, WEIGHTED))
    return f"{name}: {raw} → {weighted}"


def _handles(shown: Sequence[Covariate]) -> list[Artist]:
    """The entries of the legend."""
    handles: list[Artist] = [Patch(facecolor=COLOURS[stage], label=stage) for stage in STAGES]
    fixed = [covariate for covariate in shown if covariate.kind == "Z"]
    if not any(covariate.reference == POPULATION or covariate.is_level for covariate in fixed):
        del handles[0]
    if any(covariate.reference != POPULATION and not covariate.is_level for covariate in fixed):
        label = "mean of the population"
        line = Line2D([], [], color=style.INK, linewidth=1.2, linestyle=style.DASHES, label=label)
        handles.insert(0, line)
    return handles
