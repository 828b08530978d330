"""Tables: one row for every example, with the label in a column."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from muster.common.errors import ConfigError, listed
from muster.tasks.sources.contract import Array, DataSource, LabelledRows, Text, refused


class Columns:
    """The columns of a table.

    Attributes:
        values: arrays or lists by name, all of the same length; texts, or what a file has.
        place: says where a row is, for messages, for example its file and line.
    """

    def __init__(self, values: Mapping[str, Any], source: str, lines: Sequence[int] = ()) -> None:
        self.values = values
        self._source = source
        self._lines = lines

    def place(self, name: str, row: int) -> str:
        number = f"line {self._lines[row]}" if self._lines else f"row {row}"
        return f"{self._source}, {number}, column {name}"

    def of(self, name: str) -> Any:
        """The values of a column.

        Raises:
            ConfigError: there is no such column.
        """
        if name not in self.values:
            raise refused(self._source, f"a column {name!r}", listed(list(self.values)))
        return self.values[name]

    def numbers(self, name: str, keep_whole: bool = False) -> Array:
        """A column of numbers, or of arrays of numbers, as float32 (pixels as they are).

        Args:
            keep_whole: whether columns of whole numbers become int64 instead.
        """
        values = self.of(name)
        try:
            found = np.asarray(values)
            if found.dtype == object:
                found = np.stack([np.asarray(value) for value in values])
            if keep_whole and (found.dtype.kind in "biu" or _are_whole(found)):
                return found.astype(np.int64)
            if found.dtype == np.uint8 and found.ndim > 1:
                return found
            if found.dtype.kind not in "biufU":
                raise ValueError
            with np.errstate(over="ignore"):
                found = found.astype(np.float64).astype(np.float32)
        except (TypeError, ValueError):
            raise self._no_number(name, values) from None
        if not np.isfinite(found).all():
            raise self._no_number(name, values)
        return found

    def _no_number(self, name: str, values: Any) -> ConfigError:
        """The mistake in the first row that has no number."""
        shape = None
        mend = "name other columns in task.source.features"
        for row, value in enumerate(values):
            try:
                number = np.asarray(value).astype(np.float64)
                with np.errstate(over="ignore"):
                    bad = not np.isfinite(number.astype(np.float32)).all()
                shape = number.shape if shape is None else shape
                if not bad and number.shape == shape:
                    continue
                if not bad:
                    return refused(
                        self.place(name, row),
                        f"numbers of shape {shape} as in row 0",
                        f"{number.shape}",
                        f"bring all to one shape, or {mend}",
                    )
            except (TypeError, ValueError):
                pass
            nothing = value is None or (isinstance(value, str) and not value)
            plain = value.item() if isinstance(value, np.generic) else value
            shown = "nothing" if nothing else f"{' '.join(repr(plain).split()):.60}"
            return refused(
                self.place(name, row),
                "a finite number",
                shown,
                f"fill it, leave the row out, or {mend}",
            )
        return refused(f"{self._source}, column {name}", "numbers", "something else")

    def words(self, name: str, fractions: bool = False) -> Array:
        """A column of labels or users: whole numbers if all are such, else texts.

        Args:
            fractions: whether other numbers stay numbers too.

        Raises:
            ConfigError: one is missing, or is a fraction.
        """
        values = self.of(name)
        for row, value in enumerate(values):
            if isinstance(value, np.ndarray | list | dict):
                raise refused(self.place(name, row), "a number or a text", f"{value!r:.60}")
            if value is None or value == "" or value != value:
                raise refused(self.place(name, row), "a value", "nothing")
        try:
            numbers = np.asarray(values).astype(np.float64)
        except (TypeError, ValueError):
            return np.array([str(value) for value in values])
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            return np.array([str(value) for value in values])
        with np.errstate(invalid="ignore"):  # a number may be larger than int64
            whole = numbers.astype(np.int64)
        if (broken := np.flatnonzero(whole != numbers)).size:
            if fractions:
                return numbers
            row = int(broken[0])
            raise refused(
                self.place(name, row),
                "a class: a whole number or a text",
                f"{values[row]}",
            )
        return whole


def _are_whole(texts: Array) -> bool:
    """Whether an array has the texts of whole numbers, as columns of a CSV file."""
    return texts.dtype.kind == "U" and bool(np.char.isdecimal(np.char.lstrip(texts, "-")).all())


class DataTable(DataSource):
    """A source whose examples are rows of a table."""

    label: Text
    """The column with the label: whole numbers or texts."""

    features: list[Text] | None = None
    """The columns that a model gets, in this order. Absent: all but label and user."""

    separate: bool = False
    """Whether each column is an input of its own: the model gets it as an argument of the column's
    name, whole numbers as int64, for example token ids and masks. Otherwise columns are put side by
    side, as float32."""

    user: Text | None = None
    """The column that says whose each example is, for example its site; for the natural
    partition."""

    @abstractmethod
    def tables(self) -> tuple[Columns, Columns | None]:
        """Return the columns, and those of the examples for testing, if there are any.

        Raises:
            ConfigError: they cannot be read.
        """

    def read(self) -> tuple[LabelledRows, LabelledRows | None]:
        train, test = self.tables()
        rows = self._rows(train, self.user)
        return rows, None if test is None else self._rows(test, None)

    def _rows(self, columns: Columns, user: str | None) -> LabelledRows:
        y, place = columns.words(self.label, fractions=True), partial(columns.place, self.label)
        users = None if user is None else columns.words(user)
        left = {self.label, self.user}
        names = self.features or [name for name in columns.values if name not in left]
        if twice := left.intersection(names):
            raise refused(
                "features", "no column of labels or users", listed(sorted(map(str, twice)))
            )
        if not names:
            raise refused(
                self.where, "a column beside label and user", listed(list(columns.values))
            )
        if self.separate:
            if unfit := [name for name in names if not str(name).isidentifier()]:
                raise refused(
                    f"{self.where}, column {unfit[0]!r}",
                    "a name that an argument of the model can have",
                    "this one",
                    "rename it, or name the others in task.source.features",
                )
            return LabelledRows(
                {name: columns.numbers(name, True) for name in names}, y, users, place
            )
        found = [columns.numbers(name) for name in names]
        if len(found) == 1 and found[0].ndim > 1:
            return LabelledRows(found[0], y, users, place)
        flat = [each if each.ndim > 1 else each[:, np.newaxis] for each in found]
        return LabelledRows(np.concatenate(flat, axis=1), y, users, place)
