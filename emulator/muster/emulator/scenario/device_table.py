"""The table of devices: a file with a row for each device, or with rows from which devices draw.

    table = "devices.csv"                          # client,down_mbps,rtt_ms,examples_per_s
    table = { path = "models.csv", rows = "drawn" }  # device,weight,examples_per_s,battery_mah

A column of the file sets the key of the same meaning for every device of the group, as if the
scenario named the file there: `down_mbps` is
`link.down = { kind = "file", path = "devices.csv", column = "down_mbps", unit = "Mbit/s" }`. So
whoever uses a key needs to know nothing of tables.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

from pydantic import model_validator

from muster.client.life.device_settings import CAPACITY_MAH
from muster.common.bounds import Bounds
from muster.common.config import Section
from muster.common.errors import listed
from muster.common.file_tables import FileTable, read_table
from muster.common.per_device import PerDevice
from muster.common.units import DURATIONS, RATES, SIZES, Quantity
from muster.emulator.links.settings import NUMBERS, START

_UNITS: Mapping[Quantity | None, Mapping[str, str]] = {
    RATES: {"_bps": "bit/s", "_kbps": "kbit/s", "_mbps": "Mbit/s", "_gbps": "Gbit/s"},
    DURATIONS: {"_us": "us", "_ms": "ms", "_s": "s", "_min": "min", "_h": "h"},
    SIZES: {"_b": "B", "_kb": "kB", "_kib": "KiB", "_mb": "MB", "_mib": "MiB"},
}
"""By quantity, how the names of columns end, and the unit that this stands for."""


class TableColumn(NamedTuple):
    """A column that a table may have.

    Attributes:
        keys: the path of the key of a group that it sets.
        number: what its numbers can be; None: it has words.
        unit: the unit of its numbers.
    """

    keys: tuple[str, ...]
    number: PerDevice | None = None
    unit: str | None = None

    @property
    def bounds(self) -> Bounds:
        """The smallest and the largest number that it can have, in its unit."""
        assert self.number is not None
        return self.number.bounds_in(self.unit)

    def check(self, table: FileTable, name: str) -> None:
        """Check the column of that name.

        Raises:
            ValueError: a cell is empty, is no number, or is out of bounds; the message has its
                line.
        """
        if self.number is None:
            table.column(name)
            return
        table.numbers(name, *self.bounds)


def _of_link(key: str, number: PerDevice, name: str) -> dict[str, TableColumn]:
    """The columns that set a number of the link, one for each unit."""
    keys = "link", key
    if number.quantity is None:
        return {name: TableColumn(keys, number)}
    units = _UNITS[number.quantity]
    return {f"{name}{ending}": TableColumn(keys, number, unit) for ending, unit in units.items()}


COLUMNS: Mapping[str, TableColumn] = {
    **{
        name: column
        for _, key, number in NUMBERS
        for name, column in _of_link(key, number, key).items()
    },
    **_of_link("trace_start", START, "offset"),
    "cell": TableColumn(("link", "cell")),
    "trace": TableColumn(("link", "trace")),
    "trace_up": TableColumn(("link", "trace_up")),
    "examples_per_s": TableColumn(("device", "examples_per_s"), PerDevice(1e-3, 1e12)),
    "time_zone_h": TableColumn(("device", "time_zone"), PerDevice(-12, 14)),
    "battery_mah": TableColumn(("device", "battery", "capacity_mah"), CAPACITY_MAH),
    "charge": TableColumn(("device", "battery", "initial"), PerDevice(0, 1)),
}
"""The columns that set a key of the group, by their names. `z_NAME` sets the covariate NAME."""

WHOSE = ("client", "group", "weight", "device")
"""Columns that say whose a row is: the name of a device, that of a group, how often the row is
drawn, and what it is, for people."""


def _column(name: str) -> TableColumn | None:
    """What a column of that name sets; None: nothing."""
    if covariate := re.fullmatch(r"z_(\w+)", name):
        return TableColumn(("covariates", "z", covariate[1]))
    return COLUMNS.get(name)


class DeviceTable(Section):
    """A CSV or Parquet file with a row for each device, or with rows from which devices draw.

    Each of its columns takes the place of a key of the group ([devices.md](devices.md)).
    """

    path: str
    """Path of the file."""

    rows: Literal["each", "drawn"] = "each"
    """each: every device has a row: the one with its name in the column `client`; without that
    column, rows are in the order of the devices of the group, if there is a column `group`, and
    otherwise in that of the population. drawn: every device draws a row, once, with a probability
    in proportion to the column `weight` if there is one, and only among the rows of its group if
    there is a column `group`."""

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        table = read_table(self.path)
        if unknown := [name for name in table.header if not (_column(name) or name in WHOSE)]:
            raise ValueError(f"{self.path}: {_unknown(unknown[0])}")
        if not table.size:
            raise ValueError(f"{self.path} has no rows; expected one for each device, or to draw")
        if self.rows == "drawn" and "client" in table.header:
            raise ValueError(
                f"{self.path} has a column 'client', but rows = 'drawn' gives rows to any device; "
                f"leave out one of them"
            )
        if self.rows == "each" and "weight" in table.header:
            raise ValueError(
                f"{self.path} has a column 'weight', which decides how often a row is drawn; set "
                f"rows = 'drawn', or leave it out"
            )
        table.check_rows()
        for name, column in _columns_of(table):
            column.check(table, name)
        return self


def _columns_of(table: FileTable) -> Iterator[tuple[str, TableColumn]]:
    for name in table.header:
        if (column := _column(name)) is not None:
            yield name, column


def _unknown(name: str) -> str:
    if units := [known for known in COLUMNS if known.startswith(f"{name}_")]:
        return f"the column {name!r} lacks its unit; expected one of {listed(units)}"
    close = difflib.get_close_matches(name, [*COLUMNS, *WHOSE], n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return (
        f"unknown column {name!r}{meant}; expected those of docs/devices.md, or z_{name} for a "
        f"covariate"
    )


def with_columns(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a group with what the columns of its table set; unchanged if it has no table,
    or one that is refused elsewhere.

    Raises:
        ValueError: a key is set by a column and also in another way.
    """
    table = group.get("table")
    given = {"path": table} if isinstance(table, str) else table
    if not isinstance(given, Mapping) or not isinstance(given.get("path"), str):
        return group
    try:
        columns = list(_columns_of(read_table(given["path"])))
    except ValueError:
        return group
    found = dict(group)
    for name, column in columns:
        rows = given.get("rows", "each")
        setting = {"kind": "file", "path": given["path"], "column": name, "rows": rows}
        if column.unit is not None:
            setting["unit"] = column.unit
        _set(found, column.keys, setting, name)
    return found


def _set(tables: dict[str, Any], keys: tuple[str, ...], setting: dict[str, Any], name: str) -> None:
    """Set the key of nested tables, of which none is changed that others see."""
    *path, last = keys
    for key in path:
        below = tables.get(key, {})
        if not isinstance(below, Mapping):
            return  # refused as what it is
        tables[key] = tables = dict(below)
    # A scenario that muster has written names the column there too.
    if tables.get(last, setting) != setting:
        raise ValueError(
            f"{'.'.join(keys)} is set here, and by the column {name!r} of the table; leave out one "
            f"of them"
        )
    tables[last] = setting
