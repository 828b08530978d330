"""Tables in files with a header: CSV, which may be gzip, or Parquet.

All readers of one file share its table until it changes. A cell is text; a message names the line
of a CSV file, and the row of a Parquet file.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.common.bounds import LARGEST
from muster.common.installation import install_command
from muster.common.recorded_lines import content_of

Cells = NDArray[Any]
"""The cells of a column: float64, or text."""


class FileTable:
    """The table of a file.

    Args:
        lines: the number of each row as messages name it.
        noun: what the numbers count: lines or rows.

    Attributes:
        path: as messages name the file.
        header: the names of the columns.
        size: number of rows.
    """

    def __init__(
        self,
        path: str,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        lines: Sequence[int],
        noun: str,
    ) -> None:
        self.path, self.header, self.size = path, tuple(header), len(rows)
        self._rows, self._lines, self._noun = rows, lines, noun
        self._read: dict[str, Cells] = {}

    def place(self, row: int) -> str:
        """Where a row is, for messages: `devices.csv, line 3`."""
        return f"{self.path}, {self._noun} {self._lines[row]}"

    def texts(self, name: str) -> list[str] | None:
        """The cells of a column as they are in the file; None: there is no such column."""
        if name not in self.header:
            return None
        at = self.header.index(name)
        return [row[at].strip() if at < len(row) else "" for row in self._rows]

    def column(self, name: str) -> Cells:
        """The cells of a column: numbers if all of them are numbers, otherwise words.

        Raises:
            ValueError: there is no such column, a cell is empty, or a number is not finite.
        """
        if name not in self._read:
            cells = self.texts(name)
            if cells is None:
                raise ValueError(
                    f"{self.path} has no column {name!r}; there are: {', '.join(self.header)}"
                )
            if "" in cells:
                raise ValueError(f"{self.place(cells.index(''))} has nothing in column {name!r}")
            self._read[name] = self._numbers_or_words(name, cells)
        return self._read[name]

    def _numbers_or_words(self, name: str, cells: Sequence[str]) -> Cells:
        try:
            found = np.array([float(cell) for cell in cells])
        except ValueError:
            return np.array(cells)
        for row in np.flatnonzero(~(np.abs(found) <= LARGEST))[:1]:
            raise ValueError(
                f"{self.place(row)}: expected a number from {-LARGEST:g} to {LARGEST:g} in column "
                f"{name!r}, found {cells[row]!r}"
            )
        return found

    def numbers(self, name: str, least: float = -LARGEST, most: float = LARGEST) -> Cells:
        """The cells of a column of numbers.

        Raises:
            ValueError: as `column`, or a cell is a word, or out of bounds.
        """
        found = self.column(name)
        if found.dtype.kind == "U":
            row = next(row for row, cell in enumerate(found.tolist()) if not _is_number(cell))
        else:
            outside = np.flatnonzero((found < least) | (found > most))
            if not outside.size:
                return found
            row = int(outside[0])
        raise ValueError(
            f"{self.place(row)}: expected a number from {least:g} to {most:g} in column {name!r}, "
            f"found {str(found[row])!r}"
        )

    def check_rows(self) -> None:
        """Check the columns that say whose a row is.

        Raises:
            ValueError: as `clients` and `weights`.
        """
        _ = self.clients, self.weights

    @cached_property
    def clients(self) -> Mapping[str, int] | None:
        """The row of each client; None: the file does not name clients.

        Raises:
            ValueError: a client has more than one row.
        """
        names = self.texts("client")
        if names is None:
            return None
        rows: dict[str, int] = {}
        for row, name in enumerate(names):
            if rows.setdefault(name, row) != row:
                raise ValueError(
                    f"{self.place(row)}: client {name!r} has more than one row, the first in "
                    f"{self._noun} {self._lines[rows[name]]}; expected one for each client"
                )
        return rows

    @cached_property
    def groups(self) -> Mapping[str, Sequence[int]] | None:
        """The rows of each group, in order; None: the file does not name groups."""
        names = self.texts("group")
        if names is None:
            return None
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, []).append(row)
        return rows

    @cached_property
    def weights(self) -> Cells:
        """The weights of the rows: the column `weight`, or 1 for each.

        Raises:
            ValueError: one is not a number of at least 0.
        """
        return self.numbers("weight", 0.0) if "weight" in self.header else np.ones(self.size)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def read_table(path: str) -> FileTable:
    """Read the table of a file. All callers share it until the file changes.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        found = Path(path).expanduser()
        status = found.stat()
        return _read(found, path, status.st_mtime_ns, status.st_size)
    except (OSError, RuntimeError, UnicodeDecodeError, csv.Error) as error:  # also: no home
        raise ValueError(f"{path} cannot be read: {error}") from None


@lru_cache(maxsize=8)
def _read(path: Path, shown: str, changed_ns: int, size: int) -> FileTable:
    table = _parquet(path, shown) if path.suffix == ".parquet" else _csv(path, shown)
    if twice := [name for name in table.header if table.header.count(name) > 1]:
        raise ValueError(
            f"{shown} has more than one column {twice[0]!r}; expected one of each name"
        )
    return table


def _csv(path: Path, shown: str) -> FileTable:
    text = content_of(path).decode()
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ValueError(f"{shown}, line {line}: expected text, found a byte 0")
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    rows = [(reader.line_num, row) for row in reader]
    while rows and not rows[-1][1]:
        rows.pop()
    (_, header), *rest = rows or [(1, [])]
    names = [name.strip() for name in header]
    return FileTable(shown, names, [row for _, row in rest], [line for line, _ in rest], "line")


def _parquet(path: Path, shown: str) -> FileTable:
    try:
        import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import pyarrow.parquet as pq  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        raise ValueError(
            f"{shown} is a Parquet file, which needs pyarrow; run `{install_command('parquet')}`, "
            f"or write the table as CSV"
        ) from None
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{shown}: expected a Parquet file, found {why:.200}") from None
    columns = [[_text(cell) for cell in column.to_pylist()] for column in table.columns]
    rows = list(zip(*columns, strict=True))
    return FileTable(shown, table.column_names, rows, range(1, len(rows) + 1), "row")


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


def rows_of_devices(
    table: FileTable, clients: Sequence[str], positions: Sequence[int]
) -> Sequence[int]:
    """The row of each device: the one with its name; without a column `client`, the rows are in the
    order of its group if there is a column `group`, and otherwise in that of the population.

    Raises:
        ValueError: a device has none.
    """
    if table.clients is not None:
        by_name = table.clients
        if missing := [client for client in clients if client not in by_name]:
            others = f" nor of {len(missing) - 1} others" if len(missing) > 1 else ""
            raise ValueError(f"{table.path} has no row of client {missing[0]!r}{others}; add rows")
        return [by_name[client] for client in clients]
    if table.groups is None:
        if max(positions, default=-1) >= table.size:
            raise ValueError(
                f"{table.path} has {table.size} rows, and no column 'client'; expected one for "
                f"every device of the population, which has at least {max(positions) + 1}; add "
                f'rows, or set rows = "drawn"'
            )
        return positions
    found = []
    for group, number in map(_group_and_number, clients):
        rows = table.groups.get(group, ())
        if number >= len(rows):
            raise ValueError(
                f"{table.path} has {len(rows)} rows of group {group!r}, and no column 'client'; "
                f"expected one for every device of the group, which has at least {number + 1}; "
                f'add rows, or set rows = "drawn"'
            )
        found.append(rows[number])
    return found


def drawn_rows(table: FileTable, clients: Sequence[str], numbers: Cells) -> Sequence[int]:
    """The row that each device draws, among those of its group if there is a column `group`.

    Args:
        numbers: uniform in [0, 1), shape (n,).

    Raises:
        ValueError: there is no row to draw.
    """
    if table.groups is None:
        return list(map(int, _drawn(table, range(table.size), numbers, "")))
    of_groups = np.array([_group_and_number(client)[0] for client in clients])
    found = np.zeros(len(clients), np.int64)
    for group in dict.fromkeys(of_groups.tolist()):
        rows = table.groups.get(group, ())
        here = of_groups == group
        found[here] = _drawn(table, rows, numbers[here], f" of group {group!r}")
    return list(map(int, found))


def _drawn(table: FileTable, rows: Sequence[int], numbers: Cells, of: str) -> Cells:
    places = np.asarray(rows, np.int64)
    shares = np.cumsum(table.weights[places])
    if not places.size or not shares[-1] > 0:
        raise ValueError(f"{table.path} has no row{of} to draw; expected one with a weight above 0")
    return places[np.searchsorted(shares / shares[-1], numbers, side="right")]


def _group_and_number(client: str) -> tuple[str, int]:
    """The group of a device, and its number in it, which its name consists of."""
    group, _, number = client.rpartition("-")
    return group, int(number)
