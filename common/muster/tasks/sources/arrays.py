"""Arrays in a file of NumPy."""

import zipfile
from typing import Any

import numpy as np

from muster.common.errors import listed
from muster.tasks.sources.contract import (
    Array,
    DataSource,
    LabelledRows,
    Text,
    refused,
    require_finite,
)


class Arrays(DataSource):
    """Arrays in an .npz file, as `numpy.savez(path, x=…, y=…, test_x=…, test_y=…)` writes it.

    x has a row for every example, in any shape; its type is one of numbers. Bytes (uint8) are taken
    for pixels and divided by 255. y has the labels. Arrays for testing are used if they are there.
    """

    x: Text = "x"
    """The array of the examples."""

    y: Text = "y"
    """The array of their labels: whole numbers or texts."""

    user: Text | None = None
    """The array that says whose each example is, for example its site; for the natural
    partition."""

    test_x: Text = "test_x"
    """The array of the examples for testing; it may be missing."""

    test_y: Text = "test_y"
    """The array of their labels."""

    def read(self) -> tuple[LabelledRows, LabelledRows | None]:
        try:
            file: Any = np.load(self.path, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise refused(self.path, "an .npz file", f"{error}") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise refused(self.path, "an .npz file of several arrays", "one array (.npy)")
        with file:
            user = None if self.user is None else self._array(file, self.user)
            rows = self._rows(file, self.x, self.y, user)
            if self.test_x not in file:
                return rows, None
            test = self._rows(file, self.test_x, self.test_y)
        if test.x.shape[1:] != rows.x.shape[1:]:
            raise refused(
                f"{self.path}, {self.test_x}",
                f"examples of shape {rows.x.shape[1:]} as in {self.x}",
                f"{test.x.shape[1:]}",
            )
        return rows, test

    def _rows(self, file: Any, x: str, y: str, user: Array | None = None) -> LabelledRows:
        xs, ys = self._array(file, x), self._array(file, y)
        if xs.dtype.kind not in "biuf" or xs.ndim < 2:
            raise refused(
                f"{self.path}, {x}",
                "numbers, with a row for every example",
                f"an array of {xs.dtype} and shape {xs.shape}",
            )
        for name, column in ((y, ys), (self.user, user)):
            if column is not None and (column.ndim != 1 or column.dtype.kind not in "biufU"):
                raise refused(
                    f"{self.path}, {name}",
                    "one number or text for every example",
                    f"an array of {column.dtype} and shape {column.shape}",
                )
            if column is not None and len(column) != len(xs):
                raise refused(f"{self.path}, {name}", f"{len(xs)} rows as in {x}", f"{len(column)}")
        require_finite(xs, f"{self.path}, {x}")
        return LabelledRows(xs, ys, user)

    def _array(self, file: Any, name: str) -> Array:
        if name not in file:
            raise refused(self.path, f"an array {name}", listed(file.files))
        try:
            return np.asarray(file[name])
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            why = "it has objects of Python" if "pickle" in str(error) else str(error)
            raise refused(f"{self.path}, {name}", "numbers or texts", why) from None
