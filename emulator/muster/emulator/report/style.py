"""The look of all figures: colours, sizes and the settings that all axes share.

Figures are `matplotlib.figure.Figure` objects. pyplot, its global state and its back ends are never
touched, so drawing a report inside another program or a notebook changes nothing there.
"""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

INK, MUTED, GRID = "#1f2933", "#66727f", "#e6e9ed"
# Okabe and Ito's blue and vermillion, which colour-blind readers tell apart.
BLUE, ORANGE, GREEN, AMBER = "#0072b2", "#d55e00", "#009e73", "#e69f00"
PALE, LIGHT = "#d8e3ec", "#8fbcdb"

HEX: Mapping[str, str] = MappingProxyType(
    {
        "blue": BLUE,
        "orange": ORANGE,
        "green": GREEN,
        "purple": "#cc79a7",
        "amber": AMBER,
        "sky": "#56b4e9",
        "navy": "#332288",
        "brown": "#8c3a00",
        "forest": "#117733",
        "sand": "#f3d27a",
        "grey": "#94a0ac",
        "muted": MUTED,
        "faint": "#dfe4e9",
        "pale": PALE,
        "light": LIGHT,
        "ink": INK,
        "blue 1": "#dbe9f4",
        "blue 2": "#aecfe6",
        "blue 3": "#7fb4d8",
        "blue 4": "#4a92c0",
        "blue 5": "#1a74ab",
    }
)
"""The names of colours in charts."""

WIDTH_IN, DPI = 9.0, 160
DASHES = (0, (4, 3))
_TITLE_LETTER_IN, _MARGIN_IN = 0.085, 0.5  # the mean width of a letter; labels beside a drawing
_KEYS = 7  # legend entries in a row, if they are short
_LETTER_IN, _MARK_IN = 0.078, 0.5  # the widths of a letter of a legend, and of an entry's mark


def new_figure(height_in: float) -> Figure:
    return Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained", facecolor="white")


def tidy(axes: Axes, title: str, x: str = "", y: str = "", key: int = 0) -> None:
    """Give `axes` a title and labels, and remove everything else that is not data.

    Args:
        title: what the figure shows, as a finding; it takes several lines if it has to.
        key: rows of `key_above`, for which there is room between title and drawing.
    """
    letters = int((width_in(axes) - _MARGIN_IN) / _TITLE_LETTER_IN)
    axes.set_title(textwrap.fill(title, letters), loc="left", fontsize=10.5, fontweight="bold",
                   color=INK, pad=10 + 15 * key, parse_math=False)  # fmt: skip
    axes.set_xlabel(x, color=MUTED, fontsize=9.5)
    axes.set_ylabel(y, color=MUTED, fontsize=9.5)
    axes.tick_params(which="both", colors=MUTED, labelsize=9, length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)


def width_in(axes: Axes) -> float:
    """The width of the part of the page that `axes` has, with its labels."""
    spec = axes.get_subplotspec()
    return WIDTH_IN * len(spec.colspan) / spec.get_gridspec().ncols if spec else WIDTH_IN


def key_above(axes: Axes, handles: Sequence[Artist] | None = None, columns: int = 4) -> None:
    """Draw the legend in one row between title and drawing."""
    legend = axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=1.1,
        columnspacing=1.4,
        labelcolor=INK,
        borderpad=0.3,
        borderaxespad=0,
    )
    for entry in legend.get_texts():
        entry.set_parse_math(False)


def count(axis: Axis, most_ticks: int = 8) -> None:
    """Put ticks only at whole numbers, for counts of rounds or clients."""
    axis.set_major_locator(
        MaxNLocator(most_ticks, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    )


def say(axes: Axes, title: str, text: str) -> None:
    """Show a text in place of a drawing that has no data."""
    tidy(axes, title)
    axes.set_axis_off()
    axes.text(0.0, 0.9, text, transform=axes.transAxes, fontsize=10, color=MUTED, va="top")


def key(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw one legend for all panels, with entries in reading order."""
    columns = fitting_columns([str(handle.get_label()) for handle in handles], WIDTH_IN)
    by_column = [handle for column in range(columns) for handle in handles[column::columns]]
    legend = figure.legend(handles=by_column, loc="outside upper left", ncols=columns,
                           frameon=False, fontsize=9, handlelength=1.1, columnspacing=1.4,
                           labelcolor=INK, borderaxespad=0.2)  # fmt: skip
    for entry in legend.get_texts():
        entry.set_parse_math(False)


def fitting_columns(labels: Sequence[str], width_in: float) -> int:
    """The most legend entries that fit into a row of this width."""
    for columns in range(min(_KEYS, len(labels)), 1, -1):
        longest = (max(map(len, labels[column::columns])) for column in range(columns))
        if sum(_MARK_IN + _LETTER_IN * letters for letters in longest) <= width_in:
            return columns
    return 1
