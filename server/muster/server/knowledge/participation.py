"""Who took part in which round, and what was known of everybody then: rows to learn from.

A row stands for an enrolled device in a round that called it, or could not because it was away. It
took part when its update was folded; whatever kept it, by its own will or not, counts as not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.common.seeds import BoolArray, FloatArray, IntArray


class Seen(NamedTuple):
    """A device in a round.

    Attributes:
        place: in the population, from 0.
        x: covariates X by name; None: nothing was ever heard of it.
        age_s: scenario seconds since they were so; 0: those of the round.
    """

    place: int
    took_part: bool
    x: Mapping[str, float] | None
    age_s: float


class Rows(NamedTuple):
    """Rows as arrays, shape (n,), x of shape (n, columns)."""

    places: IntArray
    took_part: BoolArray
    x: FloatArray
    age_s: FloatArray


class ParticipationHistory:
    """The rows of all rounds.

    Args:
        columns: names of the covariates X that any group has.

    Attributes:
        latest: the rows of the newest round, by position in the population.
        unknown: devices of that round of which nothing was ever heard; they have no row.
    """

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self.columns = tuple(columns)
        self.latest = self._rows([])
        self.unknown = 0
        self._rounds: list[Rows] = []

    def enter(self, seen: Iterable[Seen]) -> None:
        """Enter a round."""
        by_place = sorted(seen, key=lambda row: row.place)
        known = [row for row in by_place if row.x is not None]
        self.latest, self.unknown = self._rows(known), len(by_place) - len(known)
        self._rounds.append(self.latest)

    def nobody(self) -> None:
        """The newest round folded nothing: nobody took part in it."""
        pooled, n = self._rounds[-1].took_part, len(self.latest.places)
        pooled[len(pooled) - n :] = False
        self.latest.took_part[:] = False

    def pooled(self) -> Rows:
        """The rows of all rounds, in their order."""
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
