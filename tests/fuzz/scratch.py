"""Files for readers that take a path."""

import tempfile
from functools import cache
from pathlib import Path


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="muster-fuzz-")


def scratch(name: str) -> Path:
    """A path in a folder of this process, which is removed when the process ends."""
    return Path(_folder().name) / name


def written(name: str, data: bytes) -> Path:
    """A file in that folder with this content."""
    path = scratch(name)
    path.write_bytes(data)
    return path
