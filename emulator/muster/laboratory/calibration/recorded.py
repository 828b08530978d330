"""Recorded rounds: what a device did in each, and how long it took, from files or from runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from muster.common.bounds import Name
from muster.common.errors import ConfigError, listed
from muster.common.file_tables import FileTable, read_table

WORK: Final = (
    "device", "group", "round", "examples",
    "train_s", "bytes_down", "down_s", "bytes_up", "up_s", "work_s",
)  # fmt: skip
"""The columns of `RecordedRounds.work`."""

_REQUIRED = ("device", "round", "train_s")

_OPTIONAL = (
    "group", "examples", "steps", "batch_size",
    "bytes_down", "down_s", "bytes_up", "up_s", "work_s", "round_s",
)  # fmt: skip

_LEAST_S = 1e-6
"""A shorter training has no speed."""

_ONE_GROUP = "devices"
"""The group of devices in a file that names no groups."""


@dataclass(frozen=True)
class RecordedRounds:
    """Recorded rounds.

    Attributes:
        work: a row for each device and round, with the columns `WORK`. `examples` are those that
            the device went through; `work_s` lasts from the call to the end of the upload. NaN: it
            was not measured.
        round_s: seconds of every round that its devices ended, by round.
        notes: what a person must know about the numbers.
    """

    work: pd.DataFrame
    round_s: pd.Series
    notes: Sequence[str] = ()


def joined(parts: Sequence[RecordedRounds]) -> RecordedRounds:
    """Several recordings as one. Devices of the same name are the same device."""
    of_parts = [
        (
            part.work.assign(round=part.work["round"].map(f"{number}/{{}}".format)),
            part.round_s.rename(f"{number}/{{}}".format),
        )
        for number, part in enumerate(parts, start=1)
    ]
    work, round_s = zip(*of_parts, strict=True)
    notes = [note for part in parts for note in part.notes]
    return RecordedRounds(pd.concat(work, ignore_index=True), pd.concat(round_s), notes)


def recorded_in_file(path: Path) -> RecordedRounds:
    """The rounds in a CSV or Parquet file.

    Raises:
        ConfigError: it cannot be read, or has a column or a cell that cannot be.
    """
    try:
        return _of_table(read_table(str(path)))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _of_table(table: FileTable) -> RecordedRounds:
    _check_columns(table)
    work = pd.DataFrame(
        {
            "device": _words(table, "device"),
            "group": _words(table, "group") if "group" in table.header else _ONE_GROUP,
            "round": _words(table, "round"),
            "examples": _examples(table),
            "train_s": table.numbers("train_s", _LEAST_S),
            "work_s": np.nan,
        }
    )
    for name in ("bytes_down", "down_s", "bytes_up", "up_s"):
        work[name] = table.numbers(name, 0.0) if name in table.header else 0.0
    notes = []
    if "work_s" in table.header:
        work["work_s"] = table.numbers("work_s", _LEAST_S)
    else:
        notes.append(
            f"{table.path} has no column 'work_s': the work of a device counts as training and "
            f"transfers, without round trips"
        )
    for row in np.flatnonzero(work.duplicated(["device", "round"]))[:1]:
        raise ValueError(
            f"{table.place(row)}: device {work['device'][row]!r} has more than one row in round "
            f"{work['round'][row]!r}; expected one"
        )
    if "round_s" in table.header:
        round_s = _round_s(table, work["round"])
    else:
        round_s = seconds_of_work(work).groupby(work["round"]).max()
        notes.append(
            f"{table.path} has no column 'round_s': a round lasts as long as its longest work"
        )
    return RecordedRounds(work[[*WORK]], round_s, notes)


def _round_s(table: FileTable, rounds: pd.Series) -> pd.Series:
    """The seconds of every round, which all its rows must have."""
    seconds = pd.Series(table.numbers("round_s", _LEAST_S))
    first = seconds.groupby(rounds).transform("first")
    for row in np.flatnonzero(seconds != first)[:1]:
        raise ValueError(
            f"{table.place(row)}: expected the same round_s in all rows of round "
            f"{rounds[row]!r}, found {seconds[row]:g} after {first[row]:g}"
        )
    return seconds.groupby(rounds).first()


def seconds_of_work(work: pd.DataFrame) -> pd.Series:
    """Seconds of the work in every row; without `work_s`, those of its parts."""
    parts: pd.Series = work["train_s"] + work["down_s"] + work["up_s"]
    return work["work_s"].fillna(parts)


def _check_columns(table: FileTable) -> None:
    """Check that a file has the columns that it must have, and no others.

    Raises:
        ValueError: it has not.
    """
    known = (*_REQUIRED, *_OPTIONAL)
    for name in table.header:
        if name not in known:
            raise ValueError(
                f"{table.path}: unknown column {name!r}; expected {listed(known)} "
                f"(docs/calibration.md)"
            )
    needed = [*_REQUIRED, *([] if "examples" in table.header else ["steps", "batch_size"])]
    for one, other in (("bytes_down", "down_s"), ("bytes_up", "up_s")):
        if (one in table.header) != (other in table.header):
            needed += [one, other]
    if missing := [name for name in needed if name not in table.header]:
        also = ", or a column 'examples'" if missing[0] in ("steps", "batch_size") else ""
        raise ValueError(f"{table.path} has no column {missing[0]!r}; expected it{also}")
    if "examples" in table.header and "steps" in table.header:
        raise ValueError(f"{table.path} has columns 'examples' and 'steps'; leave out one of them")


def _words(table: FileTable, name: str) -> list[str]:
    """The cells of a column of names.

    Raises:
        ValueError: one is empty, or cannot be the name of a group.
    """
    cells = table.texts(name) or []
    for row, cell in enumerate(cells):
        if not cell:
            raise ValueError(f"{table.place(row)} has nothing in column {name!r}")
        if name == "group" and not _is_name(cell):
            raise ValueError(
                f"{table.place(row)}: expected letters, digits, '.', '_' and '-' in column "
                f"'group', found {cell!r}"
            )
    return cells


def _is_name(text: str) -> bool:
    try:
        TypeAdapter(Name).validate_python(text)
    except ValidationError:
        return False
    return True


def _examples(table: FileTable) -> np.ndarray:
    if "examples" in table.header:
        return table.numbers("examples", 1.0)
    return table.numbers("steps", 1.0) * table.numbers("batch_size", 1.0)
