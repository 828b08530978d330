"""Single bits that flip in the files of a run folder: each is noticed by name, or changes nothing.

`make flips` tries 10,000; here is a seeded sample of them.
"""

import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from muster.common.config import validate
from muster.common.errors import MusterError
from muster.emulator.records.inputs import changes, inputs_in
from muster.emulator.records.ledger_file import open_ledger
from muster.emulator.records.manifest import (
    MANIFEST,
    Read,
    damaged_files,
    reader_of,
    require_intact,
    seal,
)
from muster.emulator.run_folder.journal_tail import journal_events
from muster.emulator.runs.resumption import require_resumable
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.tables import LEDGER_TABLES
from muster.server.strategy.history import STRATEGY, StrategyHistory
from muster.server.strategy.pipe import Push
from muster.simulation.fleet import scenarios
from muster.simulation.history import History
from muster.simulation.invariants import model_hash
from muster.simulation.programs import programs_of
from muster.simulation.whole_run import simulate_run
from muster.tasks.replies import DeviceReply

FLIPS = int(os.environ.get("MUSTER_FLIPS", "22"))
"""Flips over all kinds of folders that are played."""

KEPT = {"server": {"keep_updates": True}}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "inline": ("inline", {}),
    "partial sums": ("partial-sums", {}),
    "kept updates": ("large", KEPT),
    "opportunistic": ("shared-rounds", KEPT),
    "buffered": ("finish", {}),
    "absent devices": ("away", {}),
    "modelled": ("shared-rounds", {"clock": {"kind": "modelled"}}),
    "memory": ("fedvarp", KEPT),
    "masks": ("masks", {}),
    "control": ("inline", {"server": {"aggregator": "scaffold"}}),
    "strategy": ("inline", {}),
    "killed inline": ("inline", {}),
    "killed memory": ("fedvarp", {}),
    "killed buffered": ("finish", {}),
}
"""Kinds of folders, with the fleet of `make simulate` and further settings. The strategy's files
are those of two rounds that nobody trained."""

PLAYED = KINDS if FLIPS > 100 else ("memory", "killed buffered")


def share_of(kind: str) -> float:
    """How many flips a kind has beside others: fewer if each resumes its run."""
    return 0.1 if kind.startswith("killed") else 1.0


class Made(NamedTuple):
    """A run folder.

    Attributes:
        seen: what readers see in it.
        resume: resumes the run of a copy, and returns the hash of its model; None: it has ended.
        model: the hash of the model of the whole run.
    """

    folder: Path
    seen: str
    resume: Callable[[Path], str] | None = None
    model: str = ""


def scenario_of(kind: str) -> Scenario:
    fleet, further = KINDS[kind]
    values = json.loads(scenarios()[fleet].to_json())
    return validate(Scenario, values | {k: values[k] | v for k, v in further.items()}, kind)


def ended(kind: str, folder: Path) -> Made:
    assert simulate_run(scenario_of(kind), folder) in ("completed", "stopped")
    if kind == "strategy":
        history = StrategyHistory(folder / STRATEGY)
        history.load(0)
        for round in (1, 2):
            delta = np.full(4, round, np.float32)
            push = Push(delta, {0: b"for a", 1: b"for b"}, 2.5)
            history.write(round, push, {0: DeviceReply(delta, 4, b"of a")})
        (folder / MANIFEST).unlink()
        seal(folder)
    return Made(folder, seen_in(folder))


def killed(kind: str, folder: Path) -> Made:
    """A run whose programs all died, which nobody has concluded."""
    scenario, prepared = scenario_of(kind), folder.with_name("programs")
    prepared.mkdir()
    (prepared / "scenario.toml").write_text(scenario.to_toml())
    programs = programs_of(scenario, prepared)
    whole = History(programs, folder.with_name("whole"), 3)
    outcome = whole.play()
    assert (outcome.status, outcome.violations) == ("completed", [])
    whole.close()
    cut_off = folder.with_name("cut")
    history = History(programs, cut_off, 3, most_steps=outcome.extent.steps * 2 // 3)
    assert history.play().violations
    shutil.copytree(cut_off, folder)
    shutil.rmtree(cut_off)
    history.close()
    (folder / "setup/run").write_text(programs.server.run)
    (folder / "scenario.toml").write_text(scenario.to_toml())

    def resume(copy: Path) -> str:
        require_resumable(copy, scenario)
        resumed = History(programs, copy, 3)
        after = resumed.play()
        failed = "; ".join([*after.failures, *after.violations])
        found = model_hash(copy) if after.status == "completed" else failed
        shutil.rmtree(copy)
        resumed.close()
        return found

    return Made(folder, seen_in(folder), resume, model_hash(folder.with_name("whole")))


def seen_in(folder: Path) -> str:
    """What readers see in a folder: the tables of its ledger, its events, and its other files."""
    with closing(open_ledger(folder / "ledger.sqlite")) as ledger:
        rows = [ledger.execute(f"SELECT * FROM {t.name}").fetchall() for t in LEDGER_TABLES]
    events = list(journal_events(folder / "journal.jsonl"))
    others = [name for name in files_in(folder) if not name.startswith(("journal", "ledger"))]
    read = {name: (folder / name).read_bytes() for name in others if reader_of(name) < Read.NEVER}
    return repr((rows, events, read))


def files_in(folder: Path) -> list[str]:
    """The files that have any bit."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    names = [path.relative_to(folder).as_posix() for path in found]
    return [name for name in names if "secrets" not in name]


def noticed(folder: Path) -> str:
    """What readers and audit say of damage in a folder; empty if they notice none."""
    try:
        require_intact(folder)
        found = [each.sentence(folder) for each in damaged_files(folder, Read.AUDIT)]
        found += [str(change) for change in changes(inputs_in(folder), folder)]
        return "; ".join(found)
    except MusterError as error:
        return str(error)


def verdict(made: Made, folder: Path, name: str) -> str:
    """What a flip in a file of a copy came to: "noticed", "the same" or what went wrong."""
    if said := noticed(folder):
        return "noticed" if name.removesuffix("-wal") in said else f"another file: {said}"
    if name.startswith("setup/initial"):
        return "the same"  # the nursery writes it again
    try:
        # If nobody has concluded a run, what devices keep, and the last transaction if the journal
        # does not have it yet, is checked when the run is resumed.
        if made.resume is None and seen_in(folder) != made.seen:
            return "silent"
        if made.resume is not None and (found := made.resume(folder)) != made.model:
            return "noticed" if name.removesuffix("-wal") in found else f"resumed: {found}"
    except MusterError as error:
        return "noticed" if name.removesuffix("-wal") in str(error) else f"another file: {error}"
    return "the same"


@pytest.fixture(scope="module")
def made_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    made: dict[str, Made] = {}

    def make(kind: str) -> Made:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind.replace(" ", "-")) / "run"
            made[kind] = (killed if kind.startswith("killed") else ended)(kind, folder)
        return made[kind]

    return make


def flips(kind: str, names: list[str], number: int) -> Iterator[tuple[str, random.Random]]:
    """Which files get a flip, each file once before any gets two."""
    for at in range(number):
        chance = random.Random(f"{kind} {at}")
        turn = random.Random(f"{kind} {at // len(names)}").sample(names, len(names))
        yield turn[at % len(names)], chance


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", PLAYED)
def test_a_flipped_bit_is_noticed_by_name_or_changes_nothing(
    kind: str, made_of: Callable[[str], Made], tmp_path: Path
) -> None:
    made, copy = made_of(kind), tmp_path / "copy"
    number = math.ceil(FLIPS * share_of(kind) / sum(map(share_of, PLAYED)))
    shutil.copytree(made.folder, copy)
    assert noticed(copy) == ""
    counts, wrong = dict[str, int](), []
    for name, chance in flips(kind, files_in(made.folder), number):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(made.folder, copy)
        data = bytearray((copy / name).read_bytes())
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        (copy / name).write_bytes(data)
        found = verdict(made, copy, name)
        counts[found] = counts.get(found, 0) + 1
        if found not in ("noticed", "the same"):
            wrong.append(f"{name}, bit {bit}: {found}")
    print(f"{kind}: {number} flips: {counts}")  # noqa: T201
    assert not wrong
