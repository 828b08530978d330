"""BouquetFL's catalogues (Geimer et al.; Apache-2.0): places with rates and pings, GPUs and CPUs.

`locations.toml` has rates by country in Mbit/s, and `ping_graph.toml` round trips between them in
ms. `gpus` and `cpus`, as TOML or in an older version as CSV, describe the hardware; `shss` is its
share in Steam's hardware survey. They have no speed of training. It is taken to grow with cores
times clock, so a person says how fast one of them trains.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.common.errors import listed
from muster.common.file_tables import FileTable, read_table
from muster.common.recorded_lines import content_of
from muster.emulator.fleet.device_lists.contract import (
    DeviceListFormat,
    ImportedDevices,
    ImportOptions,
    numbers_in,
)
from muster.emulator.fleet.device_lists.scores import named_column, speeds_of

_TABLES = "locations", "gpus", "cpus"
_NOTE = "speed was taken to grow with cores times clock, which is an assumption"


def _read(path: Path, content: bytes, options: ImportOptions) -> ImportedDevices:
    if content.split(b"\n", 1)[0].lower().startswith((b"gpu name", b"cpu name")):
        _refuse_places(options)
        return _hardware_table(path, options)
    values = _toml(path, content)
    kind = next((kind for kind in _TABLES if isinstance(values.get(kind), list)), None)
    if kind is None:
        raise ValueError(
            f"{path}: expected BouquetFL's [[locations]], [[gpus]] or [[cpus]], found "
            f"{listed([*values])}; name ping_graph.toml with --ping, beside locations.toml"
        )
    if kind == "locations":
        return _places(path, values[kind], options)
    _refuse_places(options)
    return _hardware(path, kind, values[kind], options)


def _refuse_places(options: ImportOptions) -> None:
    if unused := sorted(options.given() & {"server", "ping"}):
        raise ValueError(f"--{unused[0]}: hardware has no place; leave it out")


def _toml(path: Path, content: bytes) -> Mapping[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


# --- places --------------------------------------------------------------------------------------


def _places(path: Path, entries: Sequence[Any], options: ImportOptions) -> ImportedDevices:
    if unused := sorted(options.given() & {"speed", "of"}):
        raise ValueError(f"--{unused[0]}: places have no speed of training; leave it out")
    names = [_text(path, entry, number, "name") for number, entry in enumerate(entries, start=1)]
    columns: dict[str, Sequence[float | str]] = {"device": names}
    for column, key in (("down_mbps", "download_mbps"), ("up_mbps", "upload_mbps")):
        columns[column] = [_number(path, entry, n, key) for n, entry in enumerate(entries, start=1)]
    if options.ping is None and options.server is None:
        notes = ["there are no round trips: give --ping ping_graph.toml and --server PLACE"]
        return ImportedDevices("BouquetFL's locations", columns, notes)
    if options.ping is None or options.server is None:
        raise ValueError("round trips need both --ping ping_graph.toml and --server PLACE")
    columns["rtt_ms"] = _round_trips(options.ping, names, options.server)
    return ImportedDevices(
        "BouquetFL's locations",
        columns,
        [f"round trips are those to {options.server}; a device there has 0 ms"],
    )


def _round_trips(path: Path, names: Sequence[str], server: str) -> list[float]:
    edges = _toml(path, content_of(path)).get("edges")
    if not isinstance(edges, list):
        raise ValueError(f"{path}: expected BouquetFL's [[edges]] with pings between places")
    found = {server: 0.0}
    for number, edge in enumerate(edges, start=1):
        ends = _text(path, edge, number, "from"), _text(path, edge, number, "to")
        ping_ms = _number(path, edge, number, "ping_ms")
        if server in ends:
            found[ends[ends[0] == server]] = ping_ms
    if missing := [name for name in names if name not in found]:
        raise ValueError(
            f"{path} has no ping between {server} and {missing[0]}; add it, or remove the place"
        )
    return [found[name] for name in names]


def _text(path: Path, entry: Any, number: int, key: str) -> str:
    found = entry.get(key) if isinstance(entry, Mapping) else None
    if isinstance(found, str) and found:
        return found
    raise ValueError(f"{path}, entry {number}: expected {key} to be text, found {found!r}")


def _number(path: Path, entry: Any, number: int, key: str) -> float:
    found = numbers_in(entry, [key])
    if found is None:
        raise ValueError(f"{path}, entry {number}: expected {key} to be a number of at least 0")
    return found[0]


# --- hardware ------------------------------------------------------------------------------------


def _hardware(
    path: Path, kind: str, entries: Sequence[Any], options: ImportOptions
) -> ImportedDevices:
    numbered = list(enumerate(entries, start=1))
    names = [_text(path, entry, n, "name") for n, entry in numbered]
    if kind == "gpus":
        powers = [
            _number(path, entry, n, "cuda_cores") * _number(path, entry, n, "clock_speed")
            for n, entry in numbered
        ]
    else:
        powers = [
            _cpu_power(
                f"{path}, entry {n}",
                _text(path, entry, n, "cores"),
                _text(path, entry, n, "core_clock"),
            )
            for n, entry in numbered
        ]
    columns: dict[str, Sequence[float | str]] = {
        "device": names,
        "examples_per_s": speeds_of(path, names, powers, options),
    }
    notes = [_NOTE]
    if any(isinstance(entry, Mapping) and "shss" in entry for entry in entries):
        columns["weight"] = [_number(path, entry, n, "shss") for n, entry in numbered]
        notes.append("weight is the share in Steam's hardware survey")
    return ImportedDevices(f"BouquetFL's {kind}", columns, notes)


def _hardware_table(path: Path, options: ImportOptions) -> ImportedDevices:
    table = read_table(str(path))
    name = named_column(table, ("gpu name", "cpu name"))
    assert name is not None  # the format was found by it
    names = [str(cell) for cell in table.column(name)]
    if name.lower() == "gpu name":
        cores, clocks = (
            table.numbers(_required(table, k), 0) for k in ("cuda cores", "clock speed")
        )
        powers = (cores * clocks).tolist()
    else:
        texts = (table.column(_required(table, key)) for key in ("cores", "core clock"))
        powers = [
            _cpu_power(table.place(row), str(core), str(clock))
            for row, (core, clock) in enumerate(zip(*texts, strict=True))
        ]
    speeds = speeds_of(path, names, powers, options)
    columns: dict[str, Sequence[float | str]] = {"device": names, "examples_per_s": speeds}
    return ImportedDevices(f"BouquetFL's {path.stem}", columns, [_NOTE])


def _required(table: FileTable, name: str) -> str:
    found = named_column(table, (name,))
    if found is None:
        raise ValueError(f"{table.path} has no column {name!r}; there are: {listed(table.header)}")
    return found


_CLOCK = re.compile(r"(?:\d{1,3}(?:\.\d+)? to )?(\d{1,3}(?:\.\d+)?) GHz")
"""The fastest clock of a processor."""


def _cpu_power(place: str, cores: str, clock: str) -> float:
    """Cores times GHz: `cores` is like "6 / 12" (with threads), `clock` like "3.6 to 4.2 GHz"."""
    core, ghz = re.match(r"\d+", cores.strip()), _CLOCK.fullmatch(clock.strip())
    if core is None or ghz is None:
        raise ValueError(
            f'{place}: expected cores like "6 / 12" and a clock like "3.6 to 4.2 GHz", found '
            f"{cores!r} and {clock!r}"
        )
    return int(core[0]) * float(ghz[1])


FORMAT = DeviceListFormat(
    "BouquetFL's locations, gpus or cpus",
    lambda content: (
        any(f"[[{kind}]]".encode() in content for kind in _TABLES)
        or content[:8].lower() in (b"gpu name", b"cpu name")
    ),
    _read,
    frozenset({"speed", "of", "server", "ping"}),
)
