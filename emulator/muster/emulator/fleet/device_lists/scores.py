"""Lists of devices with a score, such as rankings of AI-Benchmark: names and numbers in CSV, or as
FLASH has them in JSON: a number for each name, or objects with a name and a score.

A score says only how devices compare, so a person says how fast one of them trains.
"""

import difflib
import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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
    names, scores, weights, what = _from_json(path, content) or _from_table(path)
    columns: dict[str, Sequence[float | str]] = {
        "device": names,
        "examples_per_s": speeds_of(path, names, scores, options),
    }
    if weights is not None:
        columns["weight"] = weights
    note = "speed was taken to grow in proportion to the score, which is an assumption"
    return ImportedDevices(what, columns, [note])


class _Scores(NamedTuple):
    """A list of devices.

    Attributes:
        weights: how often each is; None: it does not say.
        what: what was read, in words.
    """

    names: list[str]
    scores: list[float]
    weights: list[float] | None
    what: str


def _from_table(path: Path) -> _Scores:
    table = read_table(str(path))
    name, score = named_column(table, _NAMES), named_column(table, _SCORES)
    if name is None or score is None:
        raise ValueError(
            f"{path}: expected a column with names ({', '.join(_NAMES)}) and one with scores "
            f"({', '.join(_SCORES)}), found: {listed(table.header)}"
        )
    weight = named_column(table, _WEIGHTS)
    return _Scores(
        list(map(str, table.column(name))),
        table.numbers(score, 1e-9).tolist(),
        None if weight is None else table.numbers(weight, 0.0).tolist(),
        f"a list with the column {score!r}",
    )


def _from_json(path: Path, content: bytes) -> _Scores | None:
    """The list in a JSON file; None: it is none."""
    if content.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}; copy the whole file") from None
    what = "a number for each name"
    pairs = list(found.items()) if isinstance(found, dict) else []
    if isinstance(found, list) and found and all(isinstance(each, dict) for each in found):
        keys = {key.lower(): key for key in found[0]}
        name, score = (
            next((keys[each] for each in known if each in keys), None)
            for known in (_NAMES, _SCORES)
        )
        what = f"a list with the key {score!r}"
        pairs = [(each.get(name), each.get(score)) for each in found]
    if not pairs:
        raise ValueError(f"{path}: expected a score for each name, found {found!r:.60}")
    scores = [_score(path, *each) for each in pairs]
    return _Scores([str(name) for name, _ in pairs], scores, None, what)


def _score(path: Path, name: object, value: object) -> float:
    """The score of a device. Rankings that were copied from a page have further words behind it."""
    words = str(value).split()
    try:
        number = float(words[0]) if words else math.nan
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf or isinstance(value, bool):
        raise ValueError(f"{path}: {name}: expected a score above 0, found {value!r:.60}")
    return number


def _matches(content: bytes) -> bool:
    if content.lstrip()[:1] in (b"{", b"["):
        begin = content[:65536].decode(errors="replace").lower()
        numbers = re.match(r'\s*\{(\s*"[^"]+"\s*:\s*[0-9.]+\s*[,}]){1,3}', begin) is not None
        return numbers or any(f'"{score}"' in begin for score in _SCORES)
    header = content.split(b"\n", 1)[0].decode(errors="replace").lower()
    cells = {cell.strip().strip('"') for cell in header.lstrip("\ufeff").split(",")}
    return bool(cells & set(_NAMES)) and bool(cells & set(_SCORES))


FORMAT = DeviceListFormat(
    "a CSV or JSON file with names and scores, such as AI-Benchmark's",
    _matches,
    _read,
    frozenset({"speed", "of"}),
)
