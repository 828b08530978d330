"""The history of participation: which devices took part in which round, and the covariates X that
the server knew of them then. Classifiers learn from its rows.

A row is an enrolled device in a round that called it, or that could not call it because it was
absent. The device took part if its update was folded. Any other outcome counts as not taking part,
whatever the cause.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.common.seeds import BoolArray, FloatArray, IntArray


class Seen(NamedTuple):
    """One device in one round.

    Attributes:
        place: its position in the population, from 0.
        took_part: whether its update was folded.
        x: its covariates X by name; None if the device was never heard from.
        age_s: age of `x` in scenario seconds; 0 if `x` is that of the round.
    """

    place: int
    took_part: bool
    x: Mapping[str, float] | None
    age_s: float


class Rows(NamedTuple):
    """n rows as arrays of shape (n,); x has the shape (n, columns)."""

    places: IntArray
    took_part: BoolArray
    x: FloatArray
    age_s: FloatArray


class ParticipationHistory:
    """The rows of all rounds.

    Args:
        columns: names of the covariates X that at least one group has.

    Attributes:
        latest: the rows of the newest round, sorted by position in the population.
        unknown: how many devices of that round were never heard from; they have no row.
    """

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self.columns = tuple(columns)
        self.latest = self._rows([])
        self.unknown = 0
        self._rounds: list[Rows] = []

    def enter(self, seen: Iterable[Seen]) -> None:
        """Add the devices of a new round."""
        by_place = sorted(seen, key=lambda row: row.place)
        known = [row for row in by_place if row.x is not None]
        self.latest, self.unknown = self._rows(known), len(by_place) - len(known)
        self._rounds.append(self.latest)

    def nobody(self) -> None:
        """Record that the newest round folded no update, so that no device took part in it."""
        pooled, n = self._rounds[-1].took_part, len(self.latest.places)
        pooled[len(pooled) - n :] = False
        self.latest.took_part[:] = False

    def leave_out(self, places: IntArray) -> None:
        """Record that updates of the newest round do not count after all, so that these devices did
        not take part in it."""
        gone = np.isin(self.latest.places, places)
        pooled = self._rounds[-1].took_part
        pooled[len(pooled) - len(gone) :][gone] = False
        self.latest.took_part[gone] = False

    def pooled(self) -> Rows:
        """Return the rows of all rounds, in the order of the rounds."""
        if len(self._rounds) != 1:
            parts = zip(*self._rounds, strict=True) if self._rounds else ()
            joined = [np.concatenate(part) for part in parts]
            self._rounds = [Rows(*joined) if joined else self._rows([])]
        return self._rounds[0]

    def _rows(self, seen: Sequence[Seen]) -> Rows:
        x = [[(row.x or {}).get(name, 0.0) for name in self.columns] for row in seen]
        return Rows(
            np.array([row.place for row in seen], dtype=np.int64),
            np.array([row.took_part for row in seen], dtype=np.bool_),
            np.array(x, dtype=np.float64).reshape(len(seen), len(self.columns)),
            np.array([row.age_s for row in seen], dtype=np.float64),
        )
