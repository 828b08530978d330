"""Plays tamperings with copies of a run, and says which check of the audit finds each."""

import shutil
import tempfile
import traceback
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.tampering.tamperings import Tampering

from muster.common.errors import MusterError
from muster.emulator.run_audit import audit


class Found(NamedTuple):
    """What the audit makes of a tampering.

    Attributes:
        by: the check that finds it, or how the folder is refused; empty: it is silent.
        sentence: the first difference.
    """

    kind: str
    tampering: Tampering
    by: str
    sentence: str = ""


def play(kind: str, folder: Path, chosen: Sequence[Tampering], seed: int = 1) -> Iterator[Found]:
    """Play tamperings, each with a copy of the run; leave out those that change nothing."""
    with tempfile.TemporaryDirectory(prefix="muster-tampered-") as scratch:
        copy = Path(scratch) / "run"
        for tampering in chosen:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            random = Random(zlib.crc32(f"{seed} {kind} {tampering.name}".encode()))
            if tampering.play(copy, random):
                yield Found(kind, tampering, *judged(copy))


def judged(folder: Path) -> tuple[str, str]:
    """By which check the audit finds something in a folder, and the sentence; empty: nothing."""
    try:
        result = audit(folder, evaluate=True)
    except MusterError as error:
        return "refused", str(error)
    except Exception:
        return "CRASH", traceback.format_exc()
    for check in result.checks:
        if check.differing:
            return check.title, str(check.differences[0])
    return "", ""
