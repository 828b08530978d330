"""Arrays in a file of NumPy."""

import zipfile
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from muster.common.errors import listed
from muster.tasks.inputs import shapes_of
from muster.tasks.sources.contract import (
    Array,
    DataSource,
    Identifier,
    LabelledRows,
    Text,
    refused,
    require_finite,
)


class Arrays(DataSource):
    """Arrays in an .npz file, as `numpy.savez(path, x=…, y=…, test_x=…, test_y=…)` writes it.

    x has a row for every example, in any shape; its type is one of numbers. Bytes (uint8) are taken
    for pixels and divided by 255. y has the labels. Arrays for testing are used if they are there.
    If x names several arrays, for example token ids and masks, the model gets them as arguments of
    these names, whole numbers as int64; those for testing have `test_` before their names.
    """

    x: Text | Annotated[list[Identifier], Field(min_length=1, max_length=100)] = "x"
    """The array of the examples, or a list of several."""

    y: Text = "y"
    """The array of their labels: whole numbers or texts."""

    user: Text | None = None
    """The array that says whose each example is, for example its site; for the natural
    partition."""

    test_x: Text = "test_x"
    """The array of the examples for testing; it may be missing. Ignored if x is a list."""

    test_y: Text = "test_y"
    """The array of their labels."""

    def read(self) -> tuple[LabelledRows, LabelledRows | None]:
        try:
            file: Any = np.load(self.path, allow_pickle=False)
        except ValueError:  # whatever is no .npz, numpy takes for a pickle, which it refuses
            raise refused(self.path, "an .npz file", "a file of another format") from None
        except (OSError, EOFError, zipfile.BadZipFile) as error:
            raise refused(self.path, "an .npz file", f"{error}") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise refused(self.path, "an .npz file of several arrays", "one array (.npy)")
        with file:
            user = None if self.user is None else self._array(file, self.user)
            rows = self._rows(file, self.x, self.y, user)
            names = self.test_x if isinstance(self.x, str) else [f"test_{name}" for name in self.x]
            if not any(name in file for name in _listed(names)):
                return rows, None
            test = self._rows(file, names, self.test_y)
        if isinstance(test.x, dict):
            test = replace(test, x={name.removeprefix("test_"): test.x[name] for name in test.x})
        if shapes_of(test.x) != shapes_of(rows.x):
            raise refused(
                f"{self.path}, {listed(_listed(names))}",
                f"examples of shape {shapes_of(rows.x)} as in {listed(_listed(self.x))}",
                f"{shapes_of(test.x)}",
            )
        return rows, test

    def _rows(
        self, file: Any, x: str | list[str], y: str, user: Array | None = None
    ) -> LabelledRows:
        ys, found = self._array(file, y), {name: self._array(file, name) for name in _listed(x)}
        for name, xs in found.items():
            if xs.dtype.kind not in "biuf" or xs.ndim < 2:
                raise refused(
                    f"{self.path}, {name}",
                    "numbers, with a row for every example",
                    f"an array of {xs.dtype} and shape {xs.shape}",
                )
            require_finite(xs, f"{self.path}, {name}")
        first, xs = next(iter(found.items()))
        others = {y: ys} if user is None else {y: ys, str(self.user): user}
        for name, column in others.items():
            if column.ndim != 1 or column.dtype.kind not in "biufU":
                raise refused(
                    f"{self.path}, {name}",
                    "one number or text for every example",
                    f"an array of {column.dtype} and shape {column.shape}",
                )
        for name, column in (found | others).items():
            if len(column) != len(xs):
                there = f"{len(xs)} rows as in {first}"
                raise refused(f"{self.path}, {name}", there, f"{len(column)}")
        return LabelledRows(xs if isinstance(x, str) else found, ys, user)

    def _array(self, file: Any, name: str) -> Array:
        if name not in file:
            raise refused(self.path, f"an array {name}", listed(file.files))
        try:
            return np.asarray(file[name])
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            why = "it has objects of Python" if "pickle" in str(error) else str(error)
            raise refused(f"{self.path}, {name}", "numbers or texts", why) from None


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
