"""Tables of the ledger, which the classes of their rows declare.

The schema, the statements that write rows, the columns that an older ledger gets when it is read,
and the tables of docs/results.md follow from the declaration. The part `Attributes` of the class's
docstring says what the columns mean.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from muster.common.facts import Reported

_TYPES = {
    int: "INTEGER", bool: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB", dict: "TEXT",
}  # fmt: skip
"""The types of fields that are columns, and the types of these. A dictionary is stored as JSON."""


Statement = tuple[str, Sequence[Sequence[Any]]]
"""A statement of SQL, and the values with which it is executed again and again."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What the name and the type of a field do not say of its column; stands in `Annotated`.

    Attributes:
        since: the first version of the schema that has the column.
        older: the SQL that stands for it in a ledger without it.
        null: whether NULL stands for a number that is not finite.
        default: its value in rows that do not give one.
        unique: whether it differs in all rows.
    """

    since: int = 0
    older: str = "NULL"
    null: bool = False
    default: int | None = None
    unique: bool = False


class LedgerColumn(NamedTuple):
    """A column of a table.

    Attributes:
        definition: its name and type in SQL, with its constraints.
        is_json: whether it has dictionaries, as JSON.
    """

    name: str
    definition: str
    stored: Stored
    is_json: bool


class LedgerTable:
    """A table of the ledger.

    Attributes:
        columns: its columns, in the order of the fields.
        names: their names, as SQL separates them.

    Args:
        row: the class of its rows, a named tuple. The last field may be a named tuple, whose
            fields are columns. A field of any other type that SQL does not know is no
            column: it has rows of another table.
        key: the names of the primary key's columns.
        numbered: whether rows have a rowid although the table has a key of other columns.
        index: a statement that makes an index.
        private: whether only the server reads it: reports and exports do not show it.
    """

    def __init__(
        self,
        name: str,
        row: Any,
        key: Sequence[str] = (),
        *,
        numbered: bool = False,
        index: str = "",
        private: bool = False,
    ) -> None:
        self.name, self.row, self.private = name, row, private
        self.columns = list(_columns(row, key[0] if len(key) == 1 else ""))
        self._ends_in_columns = hasattr([*row.__annotations__.values()][-1], "_fields")
        self.names = ", ".join(_quoted(column.name) for column in self.columns)
        self._json = [place for place, column in enumerate(self.columns) if column.is_json]
        self._key, self._numbered, self._index = key, numbered, index
        marks = ", ".join("?" * len(self.columns))
        self._insertion = f"INTO {name} ({self.names}) VALUES ({marks})"

    @property
    def ddl(self) -> str:
        """The statements that make the table and its index."""
        lines = [column.definition for column in self.columns]
        if len(self._key) > 1:
            lines.append(f"PRIMARY KEY ({', '.join(map(_quoted, self._key))})")
        numbered = self._numbered or not self._key or "INTEGER PRIMARY KEY" in lines[0]
        head, end = f"CREATE TABLE {self.name} (\n    ", ");" if numbered else ") WITHOUT ROWID;"
        return head + ",\n    ".join(lines) + f"\n{end}\n{self._index}"

    def insert(self, rows: Sequence[Sequence[Any]], verb: str = "INSERT") -> Statement:
        """The statement that inserts rows, with their values."""
        values = [(*row[:-1], *row[-1]) for row in rows] if self._ends_in_columns else rows
        for place in self._json:
            values = [(*row[:place], json.dumps(row[place]), *row[place + 1 :]) for row in values]
        return f"{verb} {self._insertion}", values

    def view_of_older(self, there: Collection[str]) -> str | None:
        """The view that gives the table of an older ledger the columns of today; None if it has
        them.

        Args:
            there: the names of the columns that it has; empty: there is no such table.
        """
        missing = [column for column in self.columns if column.name not in there]
        if not missing:
            return None
        view = f"CREATE TEMP VIEW {self.name} AS SELECT"
        if not there:
            return f"{view} {', '.join(f'NULL AS {_quoted(c.name)}' for c in missing)} WHERE 0"
        added = ", ".join(f"{c.stored.older} AS {_quoted(c.name)}" for c in missing)
        return f"{view} *, {added} FROM main.{self.name}"


def _columns(row: Any, key: str) -> Iterator[LedgerColumn]:
    """The columns of a class of rows.

    Args:
        key: the column that alone is the primary key; empty: none is.
    """
    for name, hint in get_type_hints(row, include_extras=True).items():
        kind, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if hasattr(kind, "_fields"):
            yield from _columns(kind, key)
        stored = _stored(said)
        of = get_args(kind) if NoneType in get_args(kind) else (get_origin(kind) or kind,)
        if of[0] in _TYPES:
            words = [_quoted(name), _TYPES[of[0]]]
            if name == key:
                words.append("PRIMARY KEY")
            elif NoneType not in of and not stored.null:
                words.append("NOT NULL")
            default = stored.default
            if default is None:
                default = row._field_defaults.get(name)
            if default is not None:
                words.append(f"DEFAULT {int(default)}")
            if stored.unique:
                words.append("UNIQUE")
            yield LedgerColumn(name, " ".join(words), stored, of[0] is dict)


def _stored(said: Sequence[Any]) -> Stored:
    """What the further arguments of `Annotated` say of a column."""
    if said and isinstance(said[0], Reported):
        return Stored(since=said[0].since)
    return said[0] if said else Stored()


def _quoted(name: str) -> str:
    """A name as SQL reads it."""
    return f'"{name}"' if name == "group" else name
