"""Classification of examples that the user brings in files."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from muster.common.errors import listed
from muster.common.seeds import stream
from muster.tasks.classification import Classification
from muster.tasks.datasets import Dataset
from muster.tasks.inputs import taken
from muster.tasks.sources import SOURCES, AnySource
from muster.tasks.sources.contract import refused
from muster.tasks.transforms import TRANSFORMS, AnyTransform

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from muster.tasks.sources.contract import Array, LabelledRows


class OwnData(Classification):
    """Data of your own, in files: arrays, tables or pictures with a label each.

    Labels are numbered from 0 in the order of their values. The natural partition gives each device
    one of the users, in the order of their names.
    """

    tried: ClassVar = True

    source: AnySource
    """Where the examples come from: a table with the `kind` of source and its settings."""

    test_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the examples that are left out of training, for evaluation, if the source has no
    examples for testing. They are drawn once, whatever the scenario's seed."""

    transforms: list[AnyTransform] = Field(default=[], max_length=100)
    """Transforms of the examples, one after the other, before they are scaled and divided among
    devices: names, tables with their `kind` and settings, or functions of your own,
    `module:function`."""

    def check(self) -> None:
        self.source.fetched()  # again, if a run goes on and its data set was removed
        self.source.check()

    def paths(self) -> Sequence[str]:
        return self.source.paths()

    def dataset(self) -> Dataset:
        return read_own(self)


def read_own(task: OwnData, numbers: bool = False) -> Dataset:
    """Return the examples of a task, read once per process.

    Args:
        numbers: whether labels are numbers to predict, not classes.

    Raises:
        ConfigError: they cannot be read, or are not such examples.
    """
    transforms = json.dumps([json.loads(each.to_json()) for each in task.transforms])
    return _read(task.source.to_json(), transforms, task.test_ratio, numbers)


@cache
def _read(source: str, transforms: str, test_ratio: float, numbers: bool) -> Dataset:
    """Read the examples of a source, written as JSON as the transforms are."""
    found: Any = SOURCES.parse(json.loads(source))
    found.check()
    rows, test = found.read()
    wanted: list[Any] = [TRANSFORMS.parse(each) for each in json.loads(transforms)]
    for transform in wanted:
        rows, test = (part and replace(part, x=transform.applied(part.x)) for part in (rows, test))
    return dataset_of(rows, test, test_ratio, found.where, numbers)


def dataset_of(
    rows: LabelledRows,
    test: LabelledRows | None,
    test_ratio: float,
    path: str,
    numbers: bool = False,
) -> Dataset:
    """Return examples with numbered labels and users.

    Args:
        test_ratio: see `OwnData`, if `test` is None.
        path: from where they come, for messages.
        numbers: see `read_own`.

    Raises:
        ConfigError: there are too few examples, or too many labels.
    """
    if len(rows) < 2 or (test is not None and not len(test)):
        raise refused(path, "at least two examples, and one for testing", str(len(rows)))
    labels = rows.y if test is None else np.concatenate([rows.y, test.y])
    if numbers:
        number: Array = _values(labels, path)
        classes = 1
    else:
        for part in (rows, test):
            if part is not None:
                _require_whole(part, path)
        names, number = np.unique(labels, return_inverse=True)
        _require_classes(names, len(labels), path)
        classes = len(names)
    x, y, user = rows.x, number[: len(rows)], _numbered(rows.user)
    if test is not None:
        train, test_x, test_y = np.arange(len(rows)), test.x, number[len(rows) :]
    else:
        held = _held_out(np.zeros(len(rows), np.int64) if user is None else user, test_ratio)
        train, test_x, test_y = np.flatnonzero(~held), taken(x, held), y[held]
    return Dataset(
        taken(x, train),
        y[train],
        test_x,
        test_y,
        brightest=255 if isinstance(x, np.ndarray) and x.dtype == np.uint8 else 1,
        labels=classes,
        train_user=None if user is None else user[train],
    )


def _held_out(user: npt.NDArray[np.int64], ratio: float) -> npt.NDArray[np.bool_]:
    """Which examples are for testing: the share of each user, and one at least in all. Every user
    keeps one for training."""
    random, held = stream(0, "own", "split"), np.zeros(len(user), bool)
    order = random.permutation(len(user))
    for rows in np.split(order[np.argsort(user[order], kind="stable")], _ends(user)):
        held[rows[: min(round(ratio * len(rows)), len(rows) - 1)]] = True
    if not held.any():
        most = np.argmax(np.bincount(user))
        held[order[user[order] == most][0]] = True
    return held


def _ends(user: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the rows of each user but the last one end, if they are sorted by user."""
    return np.cumsum(np.bincount(user))[:-1]


def _values(labels: Array, path: str) -> npt.NDArray[np.float32]:
    """Labels that are numbers to predict."""
    if labels.dtype.kind not in "biuf":
        raise refused(f"{path}, labels", "numbers", f"{labels[0]!r:.60}")
    with np.errstate(over="ignore"):
        values = labels.astype(np.float32)
    if not np.isfinite(values).all():
        wrong = labels[~np.isfinite(values)][0]
        raise refused(f"{path}, labels", "numbers that float32 can hold", f"{wrong}")
    return values


def _require_whole(rows: LabelledRows, path: str) -> None:
    """Check that labels are no fractions."""
    if rows.y.dtype.kind == "f" and (fractions := np.flatnonzero(rows.y % 1)).size:
        row = int(fractions[0])
        raise refused(
            f"{path}, labels" if rows.place is None else rows.place(row),
            "a class: a whole number or a text",
            f"{rows.y[row]}",
            "for numbers to predict, take task.name = 'own-regression'",
        )


def _require_classes(names: Array, examples: int, path: str) -> None:
    """Check that there are a few classes."""
    if len(names) < 2:
        raise refused(f"{path}, labels", "two classes at least", f"only {listed(list(names))}")
    if len(names) > max(2, examples // 2):
        raise refused(
            f"{path}, labels",
            f"fewer classes than half of the {examples} examples",
            f"{len(names)}: {listed(list(names), 5)}",
        )


def _numbered(users: Array | None) -> npt.NDArray[np.int64] | None:
    return None if users is None else np.unique(users, return_inverse=True)[1].astype(np.int64)
