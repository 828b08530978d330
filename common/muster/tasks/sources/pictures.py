"""Pictures in folders, one for every label."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.common.errors import listed
from muster.tasks.inputs import shapes_of
from muster.tasks.sources.contract import Array, DataSource, LabelledRows, refused

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}

_SPLITS = ("test", "val", "valid", "validation")
"""Folders beside `train` that may have the pictures for testing; the first one is used."""


class Pictures(DataSource):
    """Pictures in folders, one for every label, as `ImageFolder` of torchvision reads them.

    The path has a folder for every label, or a folder `train` with these, and beside it `test` or
    `val`. Examples have the shape (3, height, width), or (height, width) without colour.
    """

    needs = "PIL", "pictures"

    size: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Height and width in pixels to which all pictures are brought. Absent: all have the same
    size."""

    colour: bool = True
    """Whether pictures are read in colour, otherwise in shades of grey."""

    def read(self) -> tuple[LabelledRows, LabelledRows | None]:
        root = Path(self.path)
        if not (root / "train").is_dir():
            return self._rows(root), None
        tests = (root / name for name in _SPLITS)
        test = next((folder for folder in tests if folder.is_dir()), None)
        rows = self._rows(root / "train")
        return rows, None if test is None else self._rows(test, shapes_of(rows.x))

    def _rows(self, root: Path, shape: tuple[int, ...] | None = None) -> LabelledRows:
        """The pictures below a folder, in the order of their names.

        Args:
            shape: of every picture; None: that of the first one.
        """
        x: list[Array] = []
        y: list[str] = []
        for label, path in _pictures(root):
            picture = self._picture(path)
            shape = picture.shape if shape is None else shape
            if picture.shape != shape:
                raise refused(
                    path,
                    f"a picture of {_size(shape)} as the first one",
                    _size(picture.shape),
                    "bring all to one size with task.source.size",
                )
            x.append(picture)
            y.append(label)
        return LabelledRows(np.stack(x), np.array(y))

    def _picture(self, path: Path) -> Array:
        from PIL import Image

        try:
            with Image.open(path) as file:
                picture = file.convert("RGB" if self.colour else "L")
                if self.size is not None:
                    picture = picture.resize((self.size, self.size), Image.Resampling.BILINEAR)
                pixels = np.asarray(picture, np.uint8)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise refused(path, "a picture", str(error)) from None
        return pixels.transpose(2, 0, 1) if self.colour else pixels


def _pictures(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the label and the file of every picture, in the order of their names."""
    if not root.is_dir():
        raise refused(root, "a folder", "a file")
    labels = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not labels:
        names = sorted(path.name for path in root.iterdir())
        raise refused(root, "a folder of pictures for every label", listed(names, 5))
    for folder in labels:
        files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES)
        if not files:
            names = sorted(path.name for path in folder.iterdir())
            raise refused(folder, f"pictures ({listed(sorted(_SUFFIXES))})", listed(names, 5))
        for path in files:
            yield folder.name, path


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[-1]}×{shape[-2]} pixels"
