"""Where a simulation writes what is needed only while it plays."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 2**30
"""A folder in memory with less room than this may be too small for a run."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, in memory if the machine has such a folder with room."""
    where = _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM else None
    with tempfile.TemporaryDirectory(dir=where, prefix="muster-") as folder:
        yield Path(folder)
