"""Plays tamperings with copies of a run, and says which check of the audit finds each."""

import json
import shutil
import tempfile
import traceback
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.tampering.forgers import opened, repair_all
from tests.tampering.tamperings import Tampering

from muster.common.errors import MusterError
from muster.emulator.run_audit.auditing import results
from muster.laboratory.trained_again import CHECKS
from muster.server.account.tables import LEDGER_TABLES


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
    """Play tamperings, each with a copy of the run; leave out those that change nothing, or only
    what repairs alone change, by rounding sums in another way."""
    with tempfile.TemporaryDirectory(prefix="muster-tampered-") as scratch:
        copy = Path(scratch) / "run"
        shutil.copytree(folder, copy)
        repair_all(copy)
        honest = content_of(folder), content_of(copy)
        for tampering in chosen:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            random = Random(zlib.crc32(f"{seed} {kind} {tampering.name}".encode()))
            if tampering.play(copy, random) and content_of(copy) not in honest:
                yield Found(kind, tampering, *judged(copy))


def content_of(folder: Path) -> Mapping[str, Any]:
    """What a folder says: the rows of its ledger, the values of its JSON, and all other files."""
    if not (folder / "ledger.sqlite").exists():
        return {}
    with opened(folder) as ledger:
        found: dict[str, Any] = {
            table.name: sorted(map(repr, map(tuple, ledger.execute(f"SELECT * FROM {table.name}"))))
            for table in LEDGER_TABLES
        }
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("ledger.sqlite-"):
            found[str(path.relative_to(folder))] = path.read_bytes()
    del found["ledger.sqlite"]
    for name in [name for name in found if name.endswith((".json", ".jsonl"))]:
        with suppress(ValueError):
            found[name] = (
                [json.loads(line) for line in found[name].splitlines()]
                if (name.endswith("l"))
                else json.loads(found[name])
            )
    return found


def judged(folder: Path) -> tuple[str, str]:
    """By which check the audit finds something in a folder, and the sentence; empty: nothing."""
    try:
        for check in results(folder, evaluate=True, more=CHECKS):
            if check.differing:
                return check.title, str(check.differences[0])
    except MusterError as error:
        return "refused", str(error)
    except Exception:
        return "CRASH", traceback.format_exc()
    return "", ""
