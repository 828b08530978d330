"""Rows that a chart shows, as few as a chart can show."""

from collections.abc import Sequence
from typing import NamedTuple

Row = tuple[float | int | str | None, ...]


class Cursor(NamedTuple):
    """How much of a series a reader has."""

    thinned: int = 0
    rows: int = 0


class Series:
    """Keeps a row for every round, and for every second, fourth … round when there are many.

    Args:
        fields: the names of the values of a row.
        most: the most rows that are kept.
    """

    def __init__(self, fields: Sequence[str], most: int = 2000) -> None:
        self.fields = fields
        self._most = most
        self._every = 1
        self._thinned = 0
        self._came = 0
        self.rows: list[Row] = []

    def append(self, row: Row) -> None:
        self._came += 1
        if (self._came - 1) % self._every:
            return
        if len(self.rows) == self._most:
            self.rows = self.rows[::2]
            self._every *= 2
            self._thinned += 1
            if (self._came - 1) % self._every:
                return
        self.rows.append(row)

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has everything."""
        return Cursor(self._thinned, len(self.rows))
