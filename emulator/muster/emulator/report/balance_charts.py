"""Charts of whom the model represents: one for each covariate, with all stages."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
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
from muster.emulator.report.chart import Axis, Chart, line
from muster.emulator.report.intervals import Floats

COLOURS: Mapping[str, str] = MappingProxyType(
    {POPULATION: "pale", ENROLLED: "grey", PARTICIPATING: "orange", WEIGHTED: "blue"}
)

MOST_CHARTS = 12

_MOST_LEVELS = 5
_TAIL = 0.005
_BINS = 200
# If weights change nothing, the lines coincide; with different widths, both are still visible.
_WIDTHS = {ENROLLED: 1.0, PARTICIPATING: 3.2, WEIGHTED: 1.4}
_OPACITY = {POPULATION: 1.0, ENROLLED: 0.5}


def balance(account: Account) -> list[Chart]:
    """The distribution of each covariate, from the population to the weighted updates."""
    return [
        (_levels if _has_levels(panel) else _course)(panel)
        for panel in _worst(_panels(covariates_of(account)))
    ]


def left_out_of(covariates: Sequence[Covariate]) -> str:
    """A sentence on the covariates that are not drawn; empty if all are."""
    panels = _panels(covariates)
    if len(panels) <= MOST_CHARTS:
        return ""
    return f"The {MOST_CHARTS} of {len(panels)} covariates most out of balance are shown."


def _panels(covariates: Sequence[Covariate]) -> list[list[Covariate]]:
    """Group the columns by covariate: a numeric covariate has one, a categorical one per level."""
    panels: dict[tuple[str, str], list[Covariate]] = {}
    for covariate in covariates:
        panels.setdefault((covariate.kind, covariate.of), []).append(covariate)
    return list(panels.values())


def _worst(panels: Sequence[Sequence[Covariate]]) -> list[Sequence[Covariate]]:
    """The panels most out of balance, in their original order."""
    order = sorted(range(len(panels)), key=lambda place: -_size(_most(panels[place])))
    return [panels[place] for place in sorted(order[:MOST_CHARTS])]


def _most(panel: Sequence[Covariate]) -> Covariate:
    """The column furthest out of balance."""
    return max(panel, key=_size)


def _size(covariate: Covariate) -> float:
    return float(np.nan_to_num(abs(covariate.difference(PARTICIPATING))))


def _has_levels(panel: Sequence[Covariate]) -> bool:
    return panel[0].is_level or len(np.unique(panel[0].values)) <= _MOST_LEVELS


def _levels(panel: Sequence[Covariate]) -> Chart:
    """Bars for the levels of a categorical covariate, or for the few values of a number."""
    names, shares = _shares(panel)
    stages = [stage for stage in STAGES if not np.isnan(shares[stage]).all()]
    width, layers = 0.8 / len(stages), []
    for place, stage in enumerate(stages):
        left = np.arange(len(names)) - 0.4 + place * width
        layers.append(line("bars", left, shares[stage], COLOURS[stage], stage, ends=left + width))
    ticks = list(zip(map(float, range(len(names))), names, strict=True))
    x = Axis("", "number", -0.6, len(names) - 0.4, ticks=ticks)
    return Chart(_finding(panel), layers, x, Axis("share", "percent", 0.0))


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
    return [clean(name) for name in names], means


def _share(level: Covariate) -> float:
    return float(np.nan_to_num(level.target))


def _course(panel: Sequence[Covariate]) -> Chart:
    """The distribution of a number as outlines, and that of the reference as a filled area."""
    (covariate,) = panel
    edges = bin_edges(covariate.values)
    grid, kernel, layers = (edges[:-1] + edges[1:]) / 2, smoothing_kernel(covariate, edges), []
    for stage in STAGES:
        weights = covariate.weights.get(stage)
        if weights is None or not weights.any():
            continue
        shares = smoothed_shares(covariate.values, weights, edges, kernel)
        if stage == covariate.reference:
            label = stage if stage == POPULATION else ""
            layers.append(line("filled", edges, shares, "pale", label, opacity=_OPACITY[stage]))
        if stage != POPULATION:
            layers.append(line("line", grid, shares, COLOURS[stage], stage, width=_WIDTHS[stage]))
    if covariate.kind == "Z" and covariate.reference != POPULATION:
        mean = [covariate.target]
        layers.append(line("down", mean, [], "ink", "mean of the population", dashed=True))
    x = Axis("", low=edges[0], high=edges[-1])
    return Chart(_finding(panel), layers, x, Axis("frequency", low=0.0, ticks=[(0.0, "")]))


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
    name = clean(worst.name)
    if math.isnan(worst.difference(PARTICIPATING)):
        return name
    raw, weighted = (signed_text(worst.difference(stage)) for stage in (PARTICIPATING, WEIGHTED))
    return f"{name}: {raw} → {weighted}"
