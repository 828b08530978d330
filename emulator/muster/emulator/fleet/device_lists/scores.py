"""Lists of devices with a score, such as rankings of AI-Benchmark: names and numbers in CSV.

A score says only how devices compare, so a person says how fast one of them trains.
"""

import difflib
import statistics
from collections.abc import Sequence
from pathlib import Path

from muster.common.errors import listed
from muster.common.file_tables import FileTable, read_table
from muster.emulator.fleet.device_lists.contract import (
    DeviceListFormat,
    ImportedDevices,
    ImportOptions,
)

_NAMES = "device", "name", "model", "phone", "soc", "gpu", "cpu"
_SCORES = "score", "ai score", "ai-score", "ai_score", "points"
_WEIGHTS = "weight", "share", "popularity"


def speeds_of(
    path: Path, names: Sequence[str], scores: Sequence[float], options: ImportOptions
) -> list[float]:
    """The examples per second of devices, in proportion to their scores.

    Raises:
        ValueError: it is not said how fast one of them is.
    """
    if options.speed is None:
        raise ValueError(
            f"{path}: scores say only how devices compare; give --speed, the examples per second "
            f"of the middle device, or of the one that --of names"
        )
    if options.of is None:
        reference = statistics.median(scores)
    elif options.of in names:
        reference = scores[names.index(options.of)]
    else:
        near = difflib.get_close_matches(options.of, names, n=3, cutoff=0.3)
        raise ValueError(f"--of: {path} has no device {options.of!r}; it has {listed(near)}")
    return [options.speed * score / reference for score in scores]


def named_column(table: FileTable, names: Sequence[str]) -> str | None:
    """The first column of a table with one of these names in any case."""
    return next((name for name in table.header if name.lower() in names), None)


def _read(path: Path, content: bytes, options: ImportOptions) -> ImportedDevices:
    table = read_table(str(path))
    name, score = named_column(table, _NAMES), named_column(table, _SCORES)
    if name is None or score is None:
        raise ValueError(
            f"{path}: expected a column with names ({', '.join(_NAMES)}) and one with scores "
            f"({', '.join(_SCORES)}), found: {listed(table.header)}"
        )
    names = list(map(str, table.column(name)))
    scores = table.numbers(score, 1e-9).tolist()
    columns: dict[str, Sequence[float | str]] = {
        "device": names,
        "examples_per_s": speeds_of(path, names, scores, options),
    }
    if (weight := named_column(table, _WEIGHTS)) is not None:
        columns["weight"] = table.numbers(weight, 0.0).tolist()
    note = "speed was taken to grow in proportion to the score, which is an assumption"
    return ImportedDevices(f"a list with the column {score!r}", columns, [note])


def _matches(content: bytes) -> bool:
    header = content.split(b"\n", 1)[0].decode(errors="replace").lower()
    cells = {cell.strip().strip('"') for cell in header.lstrip("\ufeff").split(",")}
    return bool(cells & set(_NAMES)) and bool(cells & set(_SCORES))


FORMAT = DeviceListFormat(
    "a CSV file with names and scores, such as AI-Benchmark's",
    _matches,
    _read,
    frozenset({"speed", "of"}),
)
