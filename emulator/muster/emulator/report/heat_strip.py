"""A grid with a cell for each device, coloured by the number of its folded updates.

Ten clients fill one row of labelled cells. Thousands fill rows of a hundred, group by group.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.patches import Patch

from muster.emulator.records.account import Account
from muster.emulator.report import style
from muster.emulator.report.names import drawable, wrapped

PER_ROW = 100
_NEVER, _NOT_ENROLLED = "#f5c6a5", "#e6e9ed"
_COLOURS = LinearSegmentedColormap.from_list("folded", ["#dbe9f4", "#5fa6d2", "#00588a"])
_MOST_GROUPS = 12
_NAMED_CELLS, _COUNTED_CELLS = 12, 30
_CELLS_WIDE_IN, _LETTER_IN = 8.0, 0.078  # the width of all cells, and of a letter below them

Grid: TypeAlias = npt.NDArray[np.float64]
Blocks: TypeAlias = list[tuple[str, pd.DataFrame]]


def strip_height_in(account: Account) -> float:
    """The height of the cells of this population in inches, without title and labels."""
    blocks = _blocks(account.client_totals)
    rows = max(1, sum(math.ceil(len(block) / PER_ROW) for _, block in blocks))
    return min(0.42 * min(rows, 4) + 0.16 * max(rows - 4, 0), 3.5)


def draw_heat_strip(axes: Axes, account: Account) -> None:
    """Draw a cell for every device of the population, enrolled or not."""
    clients = account.client_totals
    if clients.empty:
        style.say(axes, "No device yet", "The population is not in the ledger yet.")
        return
    blocks = _blocks(clients)
    columns = min(PER_ROW, max(len(block) for _, block in blocks))
    counts, colours, norm = _cells(blocks, columns)
    marks = _marks(clients)
    style.tidy(axes, heat_strip_finding(clients), key=bool(marks))
    axes.imshow(colours, aspect="auto", interpolation="nearest")
    _rule(axes, *counts.shape)
    _label_rows(axes, blocks, columns)
    _label_columns(axes, clients, counts.shape)
    if columns <= _COUNTED_CELLS:
        _label_cells(axes, counts, norm)
    else:
        _scale(axes, norm)
    if marks:
        style.key_above(axes, marks)


def _blocks(clients: pd.DataFrame) -> Blocks:
    """The groups with their clients; one block without a name if there are too many groups, or too
    few clients, to tell groups apart."""
    groups = [(str(name), block) for name, block in clients.groupby("group", sort=False)]
    if 2 <= len(groups) <= _MOST_GROUPS and len(clients) >= 5 * len(groups):
        return groups
    return [("", clients)]


def _cells(blocks: Blocks, columns: int) -> tuple[Grid, Grid, Normalize]:
    """Counts and colours of the grid; a count is NaN in cells after the last client of a block."""
    folded, enrolled = [], []
    for _, block in blocks:
        pad = (0, -len(block) % columns)
        folded.append(np.pad(block["folded"].to_numpy(float), pad, constant_values=np.nan))
        enrolled.append(np.pad(block["enrolled_at"].notna().to_numpy(), pad))
    counts = np.concatenate(folded).reshape(-1, columns)
    absent = ~np.concatenate(enrolled).reshape(-1, columns)
    norm = Normalize(vmin=0, vmax=max(1.0, np.nanmax(counts)))
    colours = _COLOURS(norm(np.nan_to_num(counts)))
    colours[counts == 0] = to_rgba(_NEVER)
    colours[(counts == 0) & absent] = to_rgba(_NOT_ENROLLED)
    colours[np.isnan(counts)] = to_rgba("white")
    return counts, colours, norm


def _rule(axes: Axes, rows: int, columns: int) -> None:
    """Draw white lines between the cells."""
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    width = 1.5 if columns <= _COUNTED_CELLS else 0.5
    axes.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color="white", linewidth=width)
    axes.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color="white", linewidth=width)


def _label_rows(axes: Axes, blocks: Blocks, columns: int) -> None:
    ticks, labels, row = [], [], 0
    for name, block in blocks:
        rows = math.ceil(len(block) / columns)
        ticks.append(row + (rows - 1) / 2)
        labels.append(drawable(name))
        row += rows
        if row < sum(math.ceil(len(block) / columns) for _, block in blocks):
            axes.axhline(row - 0.5, color="white", linewidth=5)
    axes.set_yticks(ticks, labels, parse_math=False)


def _label_columns(axes: Axes, clients: pd.DataFrame, shape: tuple[int, ...]) -> None:
    rows, columns = shape
    axes.set_xticks([])
    if rows == 1 and columns <= _NAMED_CELLS:
        width = int(_CELLS_WIDE_IN / columns / _LETTER_IN)
        shared, names = _split_names([str(name) for name in clients["client"]], width)
        axes.set_xticks(range(columns), names, parse_math=False)
        axes.set_xlabel(f"devices {shared}…" if shared else "devices", parse_math=False)
    else:
        to_a_row = f", {columns} to a row" if len(clients) > columns else ""
        axes.set_xlabel(f"devices in the order of the population{to_a_row}")


def _split_names(names: list[str], width: int) -> tuple[str, list[str]]:
    """The prefix that all names share, up to a hyphen, and the rest of each name, in lines of
    `width` letters."""
    shared = names[0][: names[0].rfind("-") + 1]
    if len(names) == 1 or not all(name.startswith(shared) for name in names):
        shared = ""
    return drawable(shared), [wrapped(name.removeprefix(shared), width) for name in names]


def _label_cells(axes: Axes, counts: Grid, norm: Normalize) -> None:
    for (row, column), folded in np.ndenumerate(counts):
        if not np.isnan(folded):
            ink = "white" if folded and norm(folded) > 0.6 else style.INK
            axes.text(column, row, f"{folded:.0f}", ha="center", va="center", fontsize=8, color=ink)


def _marks(clients: pd.DataFrame) -> list[Patch]:
    absent = clients["enrolled_at"].isna()
    never = (clients["folded"] == 0) & ~absent
    marks = [Patch(color=_NEVER, label="enrolled, never folded")] if never.any() else []
    return marks + ([Patch(color=_NOT_ENROLLED, label="not enrolled")] if absent.any() else [])


def _scale(axes: Axes, norm: Normalize) -> None:
    beside = axes.inset_axes((1.012, 0, 0.012, 1))
    axes.figure.colorbar(ScalarMappable(norm, _COLOURS), cax=beside)
    beside.spines[:].set_visible(False)
    style.count(beside.yaxis, 4)
    beside.set_ylabel("updates folded", color=style.MUTED, fontsize=9)
    beside.tick_params(labelsize=9, colors=style.MUTED, length=0)


def heat_strip_finding(clients: pd.DataFrame) -> str:
    """Whether all enrolled devices contributed, as a clause."""
    enrolled = clients[clients["enrolled_at"].notna()]
    if enrolled.empty:
        return "No device has enrolled"
    never = int((enrolled["folded"] == 0).sum())
    if never:
        return f"{never} of {len(enrolled)} enrolled devices never contributed"
    least, most = int(enrolled["folded"].min()), int(enrolled["folded"].max())
    updates = "1 update" if most == 1 else f"{most} updates"
    each = updates if least == most else f"between {least} and {updates}"
    if len(enrolled) == 1:
        return f"The only enrolled device contributed {updates}"
    return f"All {len(enrolled)} enrolled devices contributed, {each} each"
