"""The use of shared links and of their cells, computed from the traffic that gateways reported."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.shared_links import LinkPlace, link_places
from muster.emulator.report.intervals import Floats
from muster.emulator.report.links import DIRECTIONS

MOST_CELLS = 40
"""The most cells of which the report shows the use: those that carried most."""


class LinkUse(NamedTuple):
    """The traffic of a link or of one of its cells.

    Attributes:
        title: the name, and the groups if several share the link.
        depth: 0 for a link, 1 for a cell of it, 2 for a cell within such a cell.
        traffic: the rows of the journal about it.
    """

    title: str
    depth: int
    traffic: pd.DataFrame


def links_with_traffic(account: Account) -> list[LinkUse]:
    """The links with traffic in the order of the groups, each before those of its cells that
    carried most."""
    cells = account.cell_traffic
    moved = (cells["bytes_up"] + cells["bytes_down"]).groupby([cells["group"], cells["cell"]]).sum()
    shown = set(moved.sort_values(ascending=False, kind="stable").index[:MOST_CELLS])
    of_link = {str(name): rows for name, rows in account.traffic.groupby("group")}
    of_cell = {key: rows for key, rows in cells.groupby(["group", "cell"]) if key in shown}
    places = {place.name: place for place in link_places(account.scenario)}
    strangers = {name: LinkPlace(name, (name,), ()) for name in of_link if name not in places}
    found = []
    for name, (_, groups, tree) in (places | strangers).items():
        if name not in of_link:
            continue
        title = name if groups == (name,) else f"{name} ({', '.join(groups)})"
        found.append(LinkUse(title, 0, of_link[name]))
        found += [
            LinkUse(cell, depth, of_cell[name, cell])
            for cell, depth in tree
            if (name, cell) in of_cell
        ]
    return found


def span_of(traffic: pd.DataFrame) -> tuple[float, float]:
    """The beginning of the first interval and the end of the last, in UNIX seconds."""
    return float((traffic["at"] - traffic["seconds"]).min()), float(traffic["at"].max())


def used(traffic: pd.DataFrame, span: tuple[float, float], most: int) -> pd.DataFrame:
    """The traffic of a group in at most `most` intervals of equal length.

    Columns: `begin` and `end` of the interval; `up_bps` and `down_bps`, the delivered rates; `up`
    and `down`, the delivered bytes as shares of the shared link's capacity, NaN if the group shares
    no link in that direction. A gateway reports only seconds in which something moved, so any other
    second counts as without traffic.
    """
    rows = traffic.sort_values("at", kind="stable")
    ends = rows["at"].to_numpy(float)
    # Clocks are read twice: an interval may seem to begin a little before the last one ended.
    begins = np.maximum(ends - rows["seconds"].to_numpy(float), np.roll(ends, 1))
    begins[0] = ends[0] - rows["seconds"].iloc[0]
    bins = int(np.clip(round((span[1] - span[0]) / float(rows["seconds"].median())), 1, most))
    edges = np.linspace(*span, bins + 1)
    moments = np.column_stack([begins, ends]).ravel()

    def within(amounts: Floats) -> Floats:
        """The part of `amounts` in each bin, if each amount is spread evenly over its interval."""
        after = np.cumsum(amounts)
        so_far = np.column_stack([after - amounts, after]).ravel()
        return np.asarray(np.diff(np.interp(edges, moments, so_far)), np.float64)

    width, quiet = np.diff(edges), np.diff(edges) - within(ends - begins)
    table = pd.DataFrame({"begin": edges[:-1], "end": edges[1:]})
    for way in DIRECTIONS:
        moved = within(rows[f"bytes_{way}"].to_numpy(float))
        capacity = rows[f"capacity_{way}"]
        cap = cap_of(rows, way) / 8
        could = within(capacity.fillna(cap * rows["seconds"]).to_numpy(float)) + cap * quiet
        table[f"{way}_bps"] = 8 * moved / width
        table[way] = np.divide(moved, could, out=np.full(bins, np.nan), where=could > 0)
    return table


def cap_of(traffic: pd.DataFrame, way: str) -> float:
    """The mean capacity of a group's shared link in bits per second; NaN without a shared link."""
    shared = traffic[traffic[f"capacity_{way}"].notna()]
    lasted = shared["seconds"].sum()
    return 8 * float(shared[f"capacity_{way}"].sum() / lasted) if lasted else math.nan
