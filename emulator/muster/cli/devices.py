"""`muster devices`: make tables of devices from lists of other projects."""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.options import NumberRange, failures_as_status
from muster.common.errors import ConfigError
from muster.common.files import refusal_of
from muster.emulator.run_folder.folder import shown

if TYPE_CHECKING:
    from muster.emulator.fleet.device_lists.contract import ImportedDevices


@click.group()
def devices() -> None:
    """Make a table of devices from a list of another project."""


@devices.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--format", help="Its format: fedscale, flash, bouquetfl, scores. Default: found.")
@click.option("--speed", type=NumberRange(0.001, 1e12), help="Examples per second of one device.")
@click.option("--of", help="The name of that device; default: the middle one.")
@click.option("--server", help="Where the server is, in BouquetFL's locations.")
@click.option("--ping", type=click.Path(path_type=Path), help="BouquetFL's ping_graph.toml.")
@failures_as_status
def import_list(
    source: Path,
    out: Path,
    format: str | None,
    speed: float | None,
    of: str | None,
    server: str | None,
    ping: Path | None,
) -> None:
    """Convert the list of devices SOURCE to OUT, a .csv file for groups.table: FedScale's
    client_device_capacity (a pickle, of which no code is run), FLASH's speed_distri.json,
    BouquetFL's locations, gpus and cpus, or a CSV file with names and scores."""
    from muster.emulator.fleet.device_lists import FORMATS, import_devices, write_devices
    from muster.emulator.fleet.device_lists.contract import ImportOptions

    if format is not None and format not in FORMATS:
        raise ConfigError(f"--format: expected one of {', '.join(FORMATS)}, found {format!r}")
    if out.suffix != ".csv":
        raise ConfigError(f"{out}: expected a name that ends in .csv")
    found = import_devices(source, ImportOptions(speed, of, server, ping), format)
    with refusal_of(f"{out} cannot be written", "name another file"):
        write_devices(out, found)
    click.echo("\n".join(_lines(found, out)))


def _lines(found: "ImportedDevices", out: Path) -> list[str]:
    """What was read, and how a scenario uses it."""
    count = len(next(iter(found.columns.values())))
    lines = [f"{count:,} devices of {found.what} in {shown(out)}"]
    for name, cells in found.columns.items():
        numbers = [cell for cell in cells if not isinstance(cell, str)]
        if numbers:
            middle = statistics.median(numbers)
            lines.append(
                f"  {name:<15} median {middle:.4g}, from {min(numbers):.4g} to {max(numbers):.4g}"
            )
    lines += [f"Note: {note}." for note in found.notes]
    drawn = f'table = {{ path = "{out.name}", rows = "drawn" }}'
    if "weight" in found.columns:
        return [*lines, "In a group, every device draws a row by its weight with", f"  {drawn}"]
    return [
        *lines,
        f"In a group of up to {count:,} devices, each has a row with",
        f'  table = "{out.name}"',
        "and in a group of any size, each draws a row with",
        f"  {drawn}",
    ]
