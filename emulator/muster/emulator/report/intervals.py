"""Overlaps of many intervals with many others, computed by sorting instead of by pairs."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


class Overlaps:
    """The total seconds of many intervals between two moments, for many pairs of moments."""

    def __init__(self, begins: Floats, ends: Floats) -> None:
        self._begins, self._ends = np.sort(begins), np.sort(ends)
        self._begun = np.concatenate([[0.0], np.cumsum(self._begins)])
        self._ended = np.concatenate([[0.0], np.cumsum(self._ends)])

    def between(self, begins: Floats, ends: Floats) -> Floats:
        return self._until(ends) - self._until(begins)

    def _until(self, moments: Floats) -> Floats:
        begun = np.searchsorted(self._begins, moments, "right")
        ended = np.searchsorted(self._ends, moments, "right")
        seconds = moments * (begun - ended) - (self._begun[begun] - self._ended[ended])
        return np.asarray(seconds, np.float64)


@dataclass(frozen=True, slots=True)
class Bend:
    """A clock that runs at 1/k of the true pace while k intervals are active, and stops if none is.

    Attributes:
        moments: the moments at which k changes, ascending.
        counts: k from each of `moments` on.
        times: the clock's time at each of `moments`.
    """

    moments: Floats
    counts: Ints
    times: Floats

    @classmethod
    def of(cls, begins: Floats, ends: Floats) -> "Bend":
        moments = np.unique(np.concatenate([begins, ends, [0.0]]))
        return cls._running(moments, active(moments, begins, ends))

    @classmethod
    def _running(cls, moments: Floats, counts: Ints) -> "Bend":
        pace = np.divide(1.0, counts, out=np.zeros(len(counts)), where=counts > 0)
        times = np.concatenate([[0.0], np.cumsum(np.diff(moments) * pace[:-1])])
        return cls(moments, counts, times)

    def without(self, begins: Floats, ends: Floats) -> "Bend":
        """The same clock, but stopped while any of these other intervals is active."""
        moments = np.unique(np.concatenate([self.moments, begins, ends]))
        places = np.searchsorted(self.moments, moments, "right") - 1
        others = active(moments, begins, ends)
        return self._running(moments, np.where(others > 0, 0, self.counts[places]))

    def at(self, moments: Floats) -> Floats:
        return np.interp(moments, self.moments, self.times)

    def between(self, begins: pd.Series, ends: pd.Series) -> pd.Series:
        return pd.Series(self.at(ends.to_numpy()) - self.at(begins.to_numpy()), begins.index)


def active(moments: Floats, begins: Floats, ends: Floats) -> Ints:
    """The number of active intervals at each moment; an interval is closed below, open above."""
    begun = np.searchsorted(np.sort(begins), moments, "right")
    ended = np.searchsorted(np.sort(ends), moments, "right")
    return np.asarray(begun - ended, np.int64)
