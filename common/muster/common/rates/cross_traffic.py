"""What cross traffic, which nothing holds back, leaves of a rate."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.common import seeds
from muster.common.config import Section
from muster.common.rates.over_time import RateOverTime
from muster.common.seeds import FloatArray

_CYCLES = 1000
"""Loads that come and go begin again after so many of their cycles, in the mean."""

_MOST_PIECES = 1 << 21
_LEAST_S = 1e-6

Positive = Annotated[float, Field(gt=0)]


class TrafficLoad(Section):
    """One load of cross traffic."""

    bps: Positive
    """Its rate while it is on."""

    on_s: Positive | None = None
    off_s: Positive | None = None
    """Mean seconds for which it is on and off in turn, both exponential; absent: always on."""

    seed: int = 0
    name: str = ""
    """The stream from which these are drawn."""

    @property
    def cycle_s(self) -> float:
        """Mean seconds from one beginning to the next; 0: it is always on."""
        return self.on_s + self.off_s if self.on_s and self.off_s else 0.0

    @property
    def mean_bps(self) -> float:
        """Its rate in the long run."""
        return self.bps * self.on_s / self.cycle_s if self.on_s and self.off_s else self.bps

    def switches(self, until_s: float) -> tuple[FloatArray, bool]:
        """The instants below `until_s` at which it is switched on or off, and whether it is on
        before the first. It has been going on for a long time."""
        if not (self.on_s and self.off_s):
            return np.empty(0), True
        draws = seeds.stream(self.seed, "cross traffic", self.name)
        on = bool(draws.random() < self.on_s / self.cycle_s)
        pairs = max(1, math.ceil(until_s / self.cycle_s))
        means = (self.on_s, self.off_s) if on else (self.off_s, self.on_s)
        instants = np.cumsum(draws.exponential(1.0, (pairs, 2)) * means)
        while instants[-1] < until_s:
            more = np.cumsum(draws.exponential(1.0, (pairs, 2)) * means)
            instants = np.concatenate([instants, instants[-1] + more])
        return instants[instants < until_s], on

    def at(self, instants: FloatArray, until_s: float) -> FloatArray:
        """Its rate at some instants, in bits per second."""
        switches, on = self.switches(until_s)
        turns = np.searchsorted(switches, instants, side="right")
        return np.where((turns % 2 == 0) == on, self.bps, 0.0)


def constant_rate(bps: float) -> RateOverTime:
    """A rate that does not vary."""
    return RateOverTime.of_pieces(np.ones(1), np.array([bps]))


def left_by(loads: Sequence[TrafficLoad], rate: RateOverTime) -> RateOverTime:
    """What loads leave of a rate: never less than nothing.

    A recorded rate is repeated as often as its loads are long, and all begin again together.

    Raises:
        ValueError: nothing is left at any time, or a recording is too long for such short loads.
    """
    wanted_s = _CYCLES * max(load.cycle_s for load in loads)
    pieces, period_s = len(rate.instants) - 1, rate.period_s
    if pieces == 1:  # it does not vary
        loops, period_s = 1, max(wanted_s, period_s)
        edges = np.array([0.0, period_s])
    else:
        loops = max(1, min(math.ceil(wanted_s / period_s), _MOST_PIECES // pieces))
        begins = np.repeat(np.arange(loops) * period_s, pieces)
        edges = np.append(begins + np.tile(rate.instants[:-1], loops), loops * period_s)
    until_s = float(edges[-1])
    events = sum(2 * until_s / load.cycle_s for load in loads if load.cycle_s)
    if pieces * loops + events > 2 * _MOST_PIECES:
        raise ValueError(
            f"a recording of {until_s:,.0f} s has too many turns of cross traffic; expected "
            f"at most {_MOST_PIECES:,}; take a shorter recording or longer times"
        )
    cuts = reduce(np.union1d, (load.switches(until_s)[0] for load in loads), edges)
    kept = np.append(np.diff(cuts[:-1], prepend=-1.0) > _LEAST_S, True)
    cuts = cuts[kept]
    middles = (cuts[:-1] + cuts[1:]) / 2
    of_rate = np.diff(rate.bits) / np.diff(rate.instants)
    places = np.searchsorted(rate.instants, middles % rate.period_s, side="right") - 1
    bps = of_rate[np.clip(places, 0, pieces - 1)]
    for load in loads:
        bps = bps - load.at(middles, until_s)
    try:
        return RateOverTime.of_pieces(np.diff(cuts), np.maximum(bps, 0.0))
    except ValueError:
        raise ValueError(
            "cross traffic leaves nothing of the link; expected loads of less than its rate"
        ) from None
