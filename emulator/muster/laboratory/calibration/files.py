"""The files of a calibration: lines of a scenario, tables of devices, and the held-out rounds."""

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from muster.common.files import write_atomic
from muster.emulator.fleet.device_lists import write_devices
from muster.emulator.fleet.device_lists.contract import ImportedDevices
from muster.emulator.run_folder.folder import making
from muster.emulator.scenario.device_table import COLUMNS
from muster.laboratory.calibration.calibrating import Calibration
from muster.laboratory.calibration.fitting import QUANTITIES, Spread, measured
from muster.laboratory.calibration.view import draw

TABLES, DRAWN = "tables.toml", "drawn.toml"
HELD_OUT, PICTURE = "held-out.csv", "quantiles.png"

_Setting = float | str | Mapping[str, float | str]


def write_files(folder: Path, found: Calibration) -> None:
    """Make a folder with the files of a calibration.

    Raises:
        ConfigError: it cannot be written.
    """
    with making(folder):
        tables, drawn = [], []
        for group, devices in found.devices.groupby("group", sort=False):
            name = f"devices-{group}.csv"
            write_devices(folder / name, _table(devices))
            head: dict[str, _Setting] = {"name": str(group), "count": len(devices)}
            pace = {"device.speed_sigma": float(f"{found.paces[str(group)]:.3g}")}
            tables.append(_group(head | pace | {"table": name}))
            drawn.append(_group(head | pace | _drawn(found.spreads[str(group)])))
        write_atomic(folder / TABLES, "\n".join(tables).encode())
        write_atomic(folder / DRAWN, "\n".join(drawn).encode())
        write_atomic(folder / HELD_OUT, found.held_out.to_csv(index=False).encode())
        draw(found, folder / PICTURE)


def _table(devices: pd.DataFrame) -> ImportedDevices:
    """The devices of a group as a table of devices."""
    numbers = {
        QUANTITIES[name].column: (devices[name] / QUANTITIES[name].size).tolist()
        for name in measured(devices)
    }
    # The column `group` says that the first row is of the first device of the group.
    whose = {"device": devices.index.tolist(), "group": devices["group"].tolist()}
    return ImportedDevices("fitted devices", {**whose, **numbers})


def _drawn(spreads: Mapping[str, Spread]) -> dict[str, _Setting]:
    """The settings with which the devices of a group draw their speeds and links."""
    settings: dict[str, _Setting] = {}
    for name, spread in spreads.items():
        column = COLUMNS[QUANTITIES[name].column]
        median = float(f"{spread.median / QUANTITIES[name].size:.4g}")
        unit = {} if column.unit is None else {"unit": column.unit}
        if spread.sigma == 0.0:
            settings[".".join(column.keys)] = f"{median:f} {column.unit}" if unit else median
            continue
        sigma = float(f"{spread.sigma:.3g}")
        settings[".".join(column.keys)] = {
            "kind": "log-normal", "median": median, "sigma": sigma, **unit,
        }  # fmt: skip
    return settings


def _group(settings: Mapping[str, _Setting]) -> str:
    """A group of a scenario, with a line for each setting."""
    lines = [f"{key} = {_text(value)}\n" for key, value in settings.items()]
    return "".join(["[[groups]]\n", *lines])


def _text(value: _Setting) -> str:
    """A value in TOML, which writes plain texts and numbers as JSON does."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {json.dumps(of)}' for key, of in value.items())} }}"
    return json.dumps(value)
