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

from tests.tampering.forgers import journal, opened, repair_all
from tests.tampering.runs import run
from tests.tampering.tamperings import Tampering

from muster.common.errors import MusterError
from muster.emulator.run_audit.auditing import results
from muster.emulator.scenario.reading import read_scenario
from muster.laboratory.trained_again import CHECKS
from muster.server.account.tables import LEDGER_TABLES


class Found(NamedTuple):
    """What the audit makes of a tampering.

    Attributes:
        by: the check that finds it, or how the folder is refused; empty: it is silent.
        sentence: the first difference; of a changed scenario of which the audit finds nothing, what
            an honest run of it leaves otherwise.
        honest: whether the folder is what an honest run of its scenario leaves, but for moments, so
            that no audit could find anything.
    """

    kind: str
    tampering: Tampering
    by: str
    sentence: str = ""
    honest: bool = False


def play(kind: str, folder: Path, chosen: Sequence[Tampering], seed: int = 1) -> Iterator[Found]:
    """Play tamperings, each with a copy of the run; leave out those that change nothing, or only
    what repairs alone change, by rounding sums in another way."""
    with tempfile.TemporaryDirectory(prefix="muster-tampered-") as scratch:
        copy = Path(scratch) / "run"
        shutil.copytree(folder, copy)
        repair_all(copy)
        unchanged = content_of(folder), content_of(copy)
        for tampering in chosen:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            random = Random(zlib.crc32(f"{seed} {kind} {tampering.name}".encode()))
            if tampering.play(copy, random) and content_of(copy) not in unchanged:
                by, sentence = judged(copy)
                honest = False
                if tampering.subject.startswith("scenario.toml ") and not by:
                    sentence = unlike_an_honest_run(copy, Path(scratch) / "again")
                    honest = not sentence
                yield Found(kind, tampering, by, sentence, honest)


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


def unlike_an_honest_run(folder: Path, again: Path) -> str:
    """What a run of the scenario in a folder leaves otherwise; empty: nothing but moments.

    Args:
        again: where the run is made.
    """
    shutil.rmtree(again, ignore_errors=True)
    run(read_scenario(folder / "scenario.toml"), again)
    expected, found = _timeless(again), _timeless(folder)
    return "; ".join(
        f"{name}: expected {_apart(expected.get(name), found.get(name))}, "
        f"found {_apart(found.get(name), expected.get(name))}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    )


def _apart(value: Any, other: Any) -> str:
    """The beginning of what a value has beyond another."""
    if isinstance(value, list) and isinstance(other, list):
        value = [each for each in value if each not in other]
    elif isinstance(value, dict) and isinstance(other, dict):
        value = {name: each for name, each in value.items() if other.get(name) != each}
    return repr(value)[:300]


def _timeless(folder: Path) -> Mapping[str, Any]:
    """What a folder says, without moments, durations and memory."""
    content = dict(content_of(folder))
    with opened(folder) as ledger:
        for table in LEDGER_TABLES:
            names = ", ".join(f'"{column.name}"' for column in table.columns
                              if not _is_moment(column.name))  # fmt: skip
            rows = ledger.execute(f"SELECT {names} FROM {table.name}")
            content[table.name] = sorted(map(repr, map(tuple, rows)))
    content["journal.jsonl"] = sorted(repr(_without_moments(event)) for event in journal(folder))
    for name in ("summary.json", "setup/server.json"):
        content[name] = _without_moments(json.loads((folder / name).read_text()))
    content["scenario.toml"] = read_scenario(folder / "scenario.toml").model_dump()
    del content["inputs"], content["setup/server.json"]["inputs"]  # the hashes of these
    return {name: value for name, value in content.items() if not name.startswith(_ELSEWHERE)}


_ELSEWHERE = ("devices", "logs", "setup/secrets", "setup/run", "address.json")


def _is_moment(name: str) -> bool:
    return name in _MOMENTS or name.endswith(("_at", "seconds", "_rss_mib", "_bps"))


_MOMENTS = frozenset({"at", "train_s", "transfer_s", "wait_s", "wall_s", "sum", "run", "id"})
"""Moments, durations, and what follows from them."""


def _without_moments(value: Any) -> Any:
    if isinstance(value, dict):
        kept = value.items()
        return {name: _without_moments(item) for name, item in kept if not _is_moment(name)}
    return [_without_moments(item) for item in value] if isinstance(value, list) else value


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
