"""A grid with a cell for each device, coloured by the number of its folded updates.

Ten clients fill one row of labelled cells. Thousands fill rows of a hundred, group by group.
"""

from typing import TypeAlias

import numpy as np
import pandas as pd

from muster.emulator.records.summary import clean
from muster.emulator.report.chart import Axis, Cells, Chart

PER_ROW = 100
_SHADES = ("blue 1", "blue 2", "blue 3", "blue 4", "blue 5")
_MOST_GROUPS = 12
_NAMED_CELLS, _COUNTED_CELLS, _MOST_LETTERS = 12, 30, 90

Blocks: TypeAlias = list[tuple[str, pd.DataFrame]]


def heat_strip(clients: pd.DataFrame) -> Chart:
    """A cell for every device of the population, enrolled or not."""
    blocks = _blocks(clients)
    columns = min(PER_ROW, max(len(block) for _, block in blocks))
    edges = _shade_edges(clients["folded"])
    rows, texts, ticks = list[str](), list[list[str]](), list[tuple[float, str]]()
    for name, block in blocks:
        letters = _letters(block, edges)
        starts = range(0, len(block), columns)
        ticks.append((len(rows) + (len(starts) - 1) / 2, clean(name)))
        rows += [letters[start : start + columns].ljust(columns) for start in starts]
        counts = [str(count) for count in block["folded"]]
        texts += [counts[start : start + columns] for start in starts]
    key = [("sand", "enrolled, never folded"), ("faint", "not enrolled"), *_shade_key(edges)]
    cells = Cells(rows, key, texts if columns <= _COUNTED_CELLS else ())
    x = _columns_axis(clients, len(rows), columns)
    y = Axis(ticks=[tick for tick in ticks if tick[1]])
    return Chart(heat_strip_finding(clients), (), x, y, rows=len(rows), cells=cells)


def _blocks(clients: pd.DataFrame) -> Blocks:
    """The groups with their clients; one block without a name if there are too many groups, or too
    few clients, to tell groups apart."""
    groups = [(str(name), block) for name, block in clients.groupby("group", sort=False)]
    if 2 <= len(groups) <= _MOST_GROUPS and len(clients) >= 5 * len(groups):
        return groups
    return [("", clients)]


def _shade_edges(folded: pd.Series) -> list[int]:
    """The smallest count of each shade, from the lightest to the darkest."""
    positive = folded[folded > 0]
    if positive.empty:
        return []
    shades = np.linspace(positive.min(), positive.max() + 1, len(_SHADES) + 1)[:-1]
    return sorted({int(np.ceil(count)) for count in shades})


def _shade_key(edges: list[int]) -> list[tuple[str, str]]:
    shades = _SHADES[-len(edges) :] if edges else ()
    ends = [*(f" to {after - 1:,}" for after in edges[1:]), " or more"]
    alone = [f"{edge:,}" if end == f" to {edge:,}" else f"{edge:,}{end}"
             for edge, end in zip(edges, ends, strict=False)]  # fmt: skip
    return [(shade, f"{text} updates") for shade, text in zip(shades, alone, strict=True)]


def _letters(block: pd.DataFrame, edges: list[int]) -> str:
    """The letters of the cells of a block: "a" never folded, "b" not enrolled, then the shades."""
    shades = np.searchsorted(edges, block["folded"], "right") + 1
    never = np.where(block["enrolled_at"].isna(), 1, 0)
    places = np.where(block["folded"] > 0, shades, never)
    return "".join(chr(ord("a") + place) for place in places.tolist())


def _columns_axis(clients: pd.DataFrame, rows: int, columns: int) -> Axis:
    low, high = -0.5, columns - 0.5
    if rows == 1 and columns <= _NAMED_CELLS:
        names = [clean(name) for name in clients["client"]]
        shared = names[0][: names[0].rfind("-") + 1]
        if len(names) == 1 or not all(name.startswith(shared) for name in names):
            shared = ""
        shown = [name.removeprefix(shared) for name in names]
        fits = sum(map(len, shown)) <= _MOST_LETTERS
        ticks = list(enumerate(shown)) if fits else [(-1.0, "")]
        return Axis(f"devices {shared}…" if shared else "devices", "count", low, high, ticks=ticks)
    to_a_row = f", {columns} to a row" if len(clients) > columns else ""
    label = f"devices in the order of the population{to_a_row}"
    return Axis(label, "count", low, high, ticks=[(-1, "")])


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
