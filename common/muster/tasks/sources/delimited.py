"""Tables in text files (CSV)."""

import csv
from typing import Literal

from muster.common.errors import listed
from muster.tasks.sources.contract import Text, refused
from muster.tasks.sources.table import Columns, DataTable


class Csv(DataTable):
    """A CSV file. Its first line names the columns, and every other line has an example.

    The file is UTF-8. All columns that a model gets have numbers.
    """

    test_path: Text | None = None
    """A file with the examples for testing, with the same columns; relative to the scenario
    file."""

    delimiter: Literal[",", ";", "\t", "|"] = ","
    """What separates two values."""

    def paths(self) -> list[str]:
        return [self.path] if self.test_path is None else [self.path, self.test_path]

    def tables(self) -> tuple[Columns, Columns | None]:
        test = None if self.test_path is None else self._columns(self.test_path)
        return self._columns(self.path), test

    def _columns(self, path: str) -> Columns:
        lines, rows = [], []
        try:
            with open(path, encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, delimiter=self.delimiter, strict=True)
                names = [name.strip() for name in next(reader, [])]
                self._require_names(path, names)
                for row in reader:
                    if len(row) != len(names) and row:
                        raise refused(
                            f"{path}, line {reader.line_num}",
                            f"{len(names)} values as in the first line",
                            str(len(row)),
                        )
                    if row:
                        rows.append(row)
                        lines.append(reader.line_num)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise refused(path, "a CSV file in UTF-8", str(error)) from None
        if not rows:
            raise refused(path, "lines with examples after the first line", "none")
        columns = zip(*rows, strict=True)
        return Columns(
            {
                name: [value.strip() for value in column]
                for name, column in zip(names, columns, strict=True)
            },
            path,
            lines,
        )

    def _require_names(self, path: str, names: list[str]) -> None:
        """Check the first line."""
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise refused(f"{path}, line 1", "each name once", f"{twice[0]!r} twice")
        if self.label not in names:
            raise refused(
                f"{path}, line 1",
                f"a column {self.label!r}, as task.source.label says",
                listed(names),
                f"columns are separated by {self.delimiter!r}",
            )
