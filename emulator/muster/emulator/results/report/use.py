"""How much of what a group shares was used: arithmetic on what gateways told of their traffic."""

import math

import numpy as np
import pandas as pd

from muster.emulator.results.report.intervals import Floats
from muster.emulator.results.report.links import DIRECTIONS


def span_of(traffic: pd.DataFrame) -> tuple[float, float]:
    """From the first interval's beginning to the last one's end, UNIX seconds."""
    return float((traffic["at"] - traffic["seconds"]).min()), float(traffic["at"].max())


def used(traffic: pd.DataFrame, span: tuple[float, float], most: int) -> pd.DataFrame:
    """Traffic of a group in at most `most` intervals of equal length.

    Columns: `begin` and `end` of the interval; `up_bps` and `down_bps`, delivered; and as shares of
    what could have been, NaN where nothing is shared, `up` and `down`. A gateway tells of no
    second in which nothing moved: what it does not tell of was quiet.
    """
    told = traffic.sort_values("at", kind="stable")
    ends = told["at"].to_numpy(float)
    # Clocks are read twice: an interval may seem to begin a little before the last one ended.
    begins = np.maximum(ends - told["seconds"].to_numpy(float), np.roll(ends, 1))
    begins[0] = ends[0] - told["seconds"].iloc[0]
    bins = int(np.clip(round((span[1] - span[0]) / float(told["seconds"].median())), 1, most))
    edges = np.linspace(*span, bins + 1)
    moments = np.column_stack([begins, ends]).ravel()

    def within(amounts: Floats) -> Floats:
        """What of `amounts` falls into each bin, when each comes evenly over its interval."""
        after = np.cumsum(amounts)
        so_far = np.column_stack([after - amounts, after]).ravel()
        return np.asarray(np.diff(np.interp(edges, moments, so_far)), np.float64)

    width, quiet = np.diff(edges), np.diff(edges) - within(ends - begins)
    table = pd.DataFrame({"begin": edges[:-1], "end": edges[1:]})
    for way in DIRECTIONS:
        moved = within(told[f"bytes_{way}"].to_numpy(float))
        capacity = told[f"capacity_{way}"]
        cap = cap_of(told, way) / 8
        could = within(capacity.fillna(cap * told["seconds"]).to_numpy(float)) + cap * quiet
        table[f"{way}_bps"] = 8 * moved / width
        table[way] = np.divide(moved, could, out=np.full(bins, np.nan), where=could > 0)
    return table


def cap_of(traffic: pd.DataFrame, way: str) -> float:
    """Bits a second that a group's shared link could have moved; NaN where nothing is shared."""
    shared = traffic[traffic[f"capacity_{way}"].notna()]
    lasted = shared["seconds"].sum()
    return 8 * float(shared[f"capacity_{way}"].sum() / lasted) if lasted else math.nan
