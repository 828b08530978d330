"""Lists of devices of other projects, each read by a file of its own; the table is below.

    found = import_devices(Path("locations.toml"), ImportOptions(server="Germany"))
    write_devices(Path("devices.csv"), found)

A reader turns its file into columns of a table of devices, which `scenario/device_table` reads.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from muster.common.errors import ConfigError, listed
from muster.common.files import write_atomic
from muster.common.recorded_lines import content_of
from muster.emulator.fleet.device_lists import bouquetfl, fedscale, flash, scores
from muster.emulator.fleet.device_lists.contract import (
    DeviceListFormat,
    ImportedDevices,
    ImportOptions,
)
from muster.emulator.scenario.device_table import COLUMNS

FORMATS: Mapping[str, DeviceListFormat] = {
    "fedscale": fedscale.FORMAT,
    "flash": flash.FORMAT,
    "bouquetfl": bouquetfl.FORMAT,
    "scores": scores.FORMAT,
}
"""The formats by name, in the order in which they are tried."""


def import_devices(
    path: Path, options: ImportOptions, format: str | None = None
) -> ImportedDevices:
    """The devices of a file of another project.

    Args:
        format: the name of its format; None: it is found by the content of the file.

    Raises:
        ConfigError: the file cannot be read, has no such format, or has what a table of devices
            cannot have.
    """
    try:
        content = content_of(path)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    name = format or next((name for name in FORMATS if FORMATS[name].matches(content)), None)
    if name is None:
        raise ConfigError(
            f"{path}: expected a list of devices, found none of the formats {listed([*FORMATS])}; "
            f"name one with --format, or write a table of devices yourself (docs/devices.md)"
        )
    if unused := sorted(options.given() - FORMATS[name].options):
        raise ConfigError(f"--{unused[0]}: the format {name!r} does not use it; leave it out")
    try:
        found = FORMATS[name].read(path, content, options)
        for column, cells in found.columns.items():
            _check(path, column, cells)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return found


def _check(path: Path, column: str, cells: object) -> None:
    """Check that a table of devices can have such a column.

    Raises:
        ValueError: it cannot.
    """
    known = COLUMNS.get(column)
    if known is None or known.number is None:
        return
    least, most = known.bounds
    for number, cell in enumerate(cells, start=1):  # type: ignore[var-annotated,arg-type]
        if not least <= cell <= most:
            raise ValueError(
                f"{path}, device {number}: expected {column} from {least:g} to {most:g}, found "
                f"{cell:g}; correct or remove the device"
            )


def write_devices(out: Path, devices: ImportedDevices) -> None:
    """Write devices as a table of devices in CSV."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(devices.columns)
    for row in zip(*devices.columns.values(), strict=True):
        rows.writerow([cell if isinstance(cell, str) else f"{cell:.6g}" for cell in row])
    write_atomic(out, text.getvalue().encode())
