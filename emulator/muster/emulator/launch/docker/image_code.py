"""Which code an image has: a digest of muster's Python files, kept as a label of the image.

`deploy/images.sh` runs this file without muster's packages, and gives it the folders from which the
image gets its code. Nothing but the standard library is imported here.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

CODE_LABEL: Final = "muster.code"
"""Label of an image; its value is the digest of the code in it."""

_TITLE_LABEL: Final = "org.opencontainers.image.title"


def code_digest(roots: Iterable[Path]) -> str:
    """The SHA-256 of all Python files in the folders of the package `muster`.

    Args:
        roots: these folders; the package has one or several. Of a file in several of them the first
            counts, as for an import.
    """
    files: dict[str, Path] = {}
    for root in roots:
        for path in root.rglob("*.py"):
            files.setdefault(path.relative_to(root).as_posix(), path)
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def has_other_code(labels: Mapping[str, str], code: str) -> bool:
    """Whether an image was made by deploy/Dockerfile, or from one of its images, with other code.

    Args:
        labels: of the image.
        code: the digest of the code that wants to run it.
    """
    ours = labels.get(_TITLE_LABEL, "").startswith("muster-")
    return ours and labels.get(CODE_LABEL) != code


if __name__ == "__main__":
    sys.stdout.write(code_digest(map(Path, sys.argv[1:])))
