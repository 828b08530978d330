"""Figures as files, for papers: draws charts with matplotlib.

Only this module, `style.py`, and the figures of plans, comparisons and studies import matplotlib,
so that a run ends, and a report is written, without it.
"""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter

from muster.common.files import write_atomic
from muster.emulator.report import style
from muster.emulator.report.chart import Axis, Cells, Chart, Layer
from muster.emulator.report.names import LONGEST, drawable, noting_names

Spans: TypeAlias = Sequence[tuple[int, int]]
Looks: TypeAlias = dict[str, Any]

_PANEL_IN, _ROW_IN, _AROUND_IN, _TALLEST_IN = 2.0, 0.16, 1.0, 4.5
_BESIDE_IN, _ROOM = 0.9, 1.05


def draw(charts: Sequence[Chart], shaded: Spans = (), columns: int = 2) -> Figure:
    """Draw charts below each other, and small ones beside each other.

    Args:
        shaded: intervals of rounds that are shaded in charts over rounds.
        columns: the most charts beside each other.
    """
    columns = 1 if len(charts) == 1 or any(chart.rows for chart in charts) else columns
    heights = [
        max(map(_height_in, charts[first : first + columns]))
        for first in range(0, len(charts), columns)
    ]
    figure = style.new_figure(sum(heights) + _AROUND_IN * len(heights))
    cells = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights).ravel()
    with noting_names():  # two groups must not have the same label
        for axes, chart in zip(cells, charts, strict=False):
            _draw_chart(axes, chart, shaded if chart.over_rounds else ())
    for axes in cells[len(charts) :]:
        axes.set_axis_off()
    return figure


def _height_in(chart: Chart) -> float:
    return min(max(_ROW_IN * chart.rows, 0.5), _TALLEST_IN) if chart.rows else _PANEL_IN


def _draw_chart(axes: Axes, chart: Chart, shaded: Spans) -> None:
    names = [layer for layer in chart.layers if layer.label]
    key = [_mark(layer) for layer in names]
    if chart.cells:
        _draw_cells(axes, chart, chart.cells)
        key = [
            Patch(color=style.HEX[colour], label=f" {_writable(name)}")
            for colour, name in _used(chart)
        ]
    room_in = style.width_in(axes) - _BESIDE_IN
    columns = style.fitting_columns([str(mark.get_label()) for mark in key], room_in)
    rows = math.ceil(len(key) / columns)
    title, x, y = map(_writable, (chart.title, chart.x.label, chart.y.label))
    style.tidy(axes, title, x, y, key=rows)
    for layer in chart.layers:
        _KINDS[layer.kind](axes, layer, _looks(layer))
    _scale(axes, "x", chart.x, chart.rows)
    _scale(axes, "y", chart.y, chart.rows)
    if chart.rows:
        axes.set_ylim(chart.rows - 0.5, -0.5)
        axes.grid(visible=False)
    for first, last in shaded:
        axes.axvspan(first - 0.5, last + 0.5, color=style.AMBER, alpha=0.18, linewidth=0, zorder=0)
    if key:
        style.key_above(axes, key, columns)


def _mark(layer: Layer) -> Patch:
    # matplotlib leaves out labels that begin with "_".
    return Patch(color=style.HEX[layer.colour], alpha=layer.opacity,
                 label=f" {_short(layer.label, 36)}")  # fmt: skip


def _short(label: str, longest: int = LONGEST) -> str:
    return _writable(label) if len(label) <= longest else drawable(label, longest)


def _writable(text: str) -> str:
    """The text with question marks for letters that the font does not have."""
    letters = get_font(findfont(FontProperties())).get_charmap()
    return "".join(letter if ord(letter) in letters else "?" for letter in text)


def _looks(layer: Layer) -> Looks:
    dashes = style.DASHES if layer.dashed else "-"
    return {"color": style.HEX[layer.colour], "alpha": layer.opacity, "linewidth": layer.width,
            "linestyle": dashes}  # fmt: skip


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([math.nan if value is None else value for value in values], np.float64)


def _line(axes: Axes, layer: Layer, looks: Looks) -> None:
    drawn = "steps-post" if layer.kind == "steps" else "default"
    marker = "o" if len(layer.x) == 1 else ""
    axes.plot(_floats(layer.x), _floats(layer.y), drawstyle=drawn, marker=marker, markersize=4,
              **looks)  # fmt: skip


def _levels(axes: Axes, layer: Layer, looks: Looks) -> None:
    axes.stairs(_floats(layer.y), _floats(layer.x), baseline=None, **looks)


def _filled(axes: Axes, layer: Layer, looks: Looks) -> None:
    low = _floats(layer.low) if len(layer.low) else 0.0
    axes.stairs(_floats(layer.y), _floats(layer.x), baseline=low, fill=True,
                **looks | {"linewidth": 0})  # fmt: skip


def _dots(axes: Axes, layer: Layer, looks: Looks) -> None:
    axes.plot(_floats(layer.x), _floats(layer.y), "o", markersize=3, markeredgewidth=0,
              clip_on=False, **looks | {"linestyle": ""})  # fmt: skip


def _bars(axes: Axes, layer: Layer, looks: Looks) -> None:
    begins, ends = _floats(layer.x), _floats(layer.ends)
    axes.bar(begins, _floats(layer.y), ends - begins, align="edge", **looks | {"linewidth": 0})


def _spans(axes: Axes, layer: Layer, looks: Looks) -> None:
    begins, ends = _floats(layer.x), _floats(layer.ends)
    axes.barh(_floats(layer.y), ends - begins, 0.78, begins, **looks | {"linewidth": 0})


def _across(axes: Axes, layer: Layer, looks: Looks) -> None:
    for value in _floats(layer.y)[np.isfinite(_floats(layer.y))]:
        axes.axhline(value, **looks)


def _down(axes: Axes, layer: Layer, looks: Looks) -> None:
    for place in _floats(layer.x)[np.isfinite(_floats(layer.x))]:
        axes.axvline(place, **looks)


_KINDS: Mapping[str, Callable[[Axes, Layer, Looks], None]] = MappingProxyType(
    {
        "line": _line,
        "steps": _line,
        "levels": _levels,
        "filled": _filled,
        "dots": _dots,
        "bars": _bars,
        "across": _across,
        "down": _down,
        "spans": _spans,
    }
)


def _draw_cells(axes: Axes, chart: Chart, cells: Cells) -> None:
    palette = np.array([to_rgb(style.HEX[colour]) for colour, _ in cells.key] + [(1.0, 1.0, 1.0)])
    codes = [[ord(letter) - ord("a") if letter != " " else -1 for letter in row]
             for row in cells.rows]  # fmt: skip
    assert chart.x.low is not None
    assert chart.x.high is not None
    extent = (chart.x.low, chart.x.high, len(cells.rows) - 0.5, -0.5)
    axes.imshow(palette[np.array(codes)], aspect="auto", interpolation="nearest", extent=extent)
    width = (chart.x.high - chart.x.low) / len(cells.rows[0])
    for row, texts in enumerate(cells.texts):
        for column, text in enumerate(texts):
            axes.text(chart.x.low + (column + 0.5) * width, row, text, ha="center", va="center",
                      fontsize=8)  # fmt: skip


def _used(chart: Chart) -> list[tuple[str, str]]:
    """The entries of the key of cells that there are."""
    assert chart.cells is not None
    there = set("".join(chart.cells.rows))
    return [entry for place, entry in enumerate(chart.cells.key) if chr(ord("a") + place) in there]


def _scale(axes: Axes, name: str, axis: Axis, rows: int) -> None:
    """Set the ends, the ticks and the numbers of an axis."""
    mine = axes.xaxis if name == "x" else axes.yaxis
    if axis.log:
        mine.axes.set(**{f"{name}scale": "log"})
        mine.set_major_locator(LogLocator(subs=(1, 2, 5)))
        mine.set_major_formatter("{x:g}")
        mine.set_minor_locator(NullLocator())
    elif axis.ticks or (name == "y" and rows):
        labels = [label if "\n" in label else _short(label) for _, label in axis.ticks]
        mine.set_ticks([place for place, _ in axis.ticks], labels, parse_math=False)
    elif axis.text == "count":
        style.count(mine)
    else:
        mine.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    if axis.text == "percent":
        mine.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    low, high = mine.get_view_interval()
    low = low if axis.low is None else axis.low
    room = 1.0 if name == "x" or axis.log else _ROOM
    mine.axes.set(**{f"{name}lim": (low, high * room if axis.high is None else axis.high)})


def save_figure(path: Path, figure: Figure) -> dict[str, str]:
    """Write the figure into a PNG file; return what a page shows of it, as `picture` does."""
    png = _png(figure)
    write_atomic(path, png)
    return picture(figure, png)


def picture(figure: Figure, png: bytes | None = None) -> dict[str, str]:
    """What a page shows of a figure.

    Args:
        png: the figure as PNG, if it is drawn already.

    Returns:
        source: a data URI.
        findings: the titles, for readers who do not see the figure.
    """
    findings = [title for axes in figure.axes if (title := axes.get_title(loc="left"))]
    return {
        "source": f"data:image/png;base64,{base64.b64encode(png or _png(figure)).decode()}",
        "findings": ". ".join(findings).replace("\n", " "),
    }


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def save_lines(path: Path, figure: Figure, kind: str) -> None:
    """Write the figure as lines and text; the same figure gives the same bytes."""
    file, date = io.BytesIO(), "Date" if kind == "svg" else "CreationDate"
    with rc_context({"svg.hashsalt": "muster"}):
        figure.savefig(file, format=kind, metadata={date: None})
    write_atomic(path, file.getvalue())


def save(path: Path, figure: Figure) -> None:
    """Write the figure into a file of the kind that its name says."""
    kind = path.suffix.removeprefix(".")
    if kind == "png":
        save_figure(path, figure)
    else:
        save_lines(path, figure, kind)
