"""Damage to the files of a killed run: it is recovered to the same bits, or refused by name."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError, LedgerError
from muster.emulator.runs.resumption import require_resumable
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.ledger import Ledger
from muster.simulation.drawn_fleets import LARGE
from muster.simulation.history import History
from muster.simulation.invariants import model_hash
from muster.simulation.programs import Programs, programs_of

LIFE: dict[str, Any] = {
    "device": {"profile": "phone"},
    "availability": {"kind": "markov", "mean_up_s": 14400, "mean_down_s": 3600},
    "participation": {"drop_out": 0.2},
}
"""Devices whose batteries depend on what they did."""

WORLDS: dict[str, dict[str, Any]] = {
    # Versions in files, remembered updates, residuals of compression.
    "large": {
        "task": {"name": "linear", "dimension": LARGE, "examples_per_client": 4},
        "training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4},
        "server": {"rounds": 6, "aggregator": "fedvarp", "keep_updates": True},
        "groups": [
            {"name": "g", "count": 3, "link": {"compression": {"kind": "top-k", "ratio": 0.1}}}
        ],
    },
    # Open assignments, a state of the aggregator, lives.
    "buffered": {
        "clock": {"round_s": 3600.0},
        "server": {
            "rounds": 8,
            "aggregator": "fedadam",
            "mode": {"kind": "buffered", "k": 2, "concurrency": 4},
        },
        "groups": [{"name": "g", "count": 6, **LIFE}],
    },
    # Control variates that devices keep.
    "controlled": {
        "server": {"rounds": 6, "aggregator": "scaffold"},
        "groups": [{"name": "g", "count": 3}],
    },
    # Weights that are estimated from all answers so far.
    "estimated": {
        "clock": {"round_s": 3600.0},
        "server": {"rounds": 8, "aggregator": "participation-ipw"},
        "groups": [
            {
                "name": "g",
                "count": 6,
                **LIFE,
                "covariates": {"x": {"charge": "battery", "load": {"kind": "uniform"}}},
            }
        ],
    },
}

FILES = {
    "large": ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-sums", "journal.jsonl",
              "models/*.safetensors", "memory.bin", "devices/*/state.bin"),
    "buffered": ("ledger.sqlite", "ledger.sqlite-wal", "journal.jsonl", "devices/*/state.bin"),
    "controlled": ("devices/*/state.bin",),
    "estimated": ("ledger.sqlite", "ledger.sqlite-wal", "devices/*/state.bin"),
}  # fmt: skip

Damage = Callable[[bytearray, random.Random], bytearray]


def emptied(data: bytearray, chance: random.Random) -> bytearray:
    return bytearray()


def cut(data: bytearray, chance: random.Random) -> bytearray:
    return data[: chance.randrange(1, len(data))]


def zeroed(data: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(max(1, len(data) - 512))
    data[at : at + 512] = bytes(len(data[at : at + 512]))
    return data


def flipped(data: bytearray, chance: random.Random) -> bytearray:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def flipped_early(data: bytearray, chance: random.Random) -> bytearray:
    data[chance.randrange(min(100, len(data)))] ^= 1 << chance.randrange(8)
    return data


DAMAGES: tuple[tuple[Damage, int], ...] = (
    (emptied, 1), (cut, 2), (zeroed, 3), (flipped, 4), (flipped_early, 2),
)  # fmt: skip
"""Kinds of damage, with how often each is tried on a kind of file."""

TIMES = int(os.environ.get("MUSTER_DAMAGES", "1"))
"""Factor of these numbers, for a longer search."""


class World(NamedTuple):
    """A fleet, the folder of its run as a kill has left it, and the hash of its undisturbed
    model."""

    scenario: Scenario
    programs: Programs
    killed: Path
    expected: str


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    made: dict[str, World] = {}

    def world(name: str) -> World:
        if name not in made:
            made[name] = _killed_run(name, tmp_path_factory.mktemp(name))
        return made[name]

    return world


def _killed_run(name: str, folder: Path) -> World:
    values = {
        "name": name,
        "seed": 3,
        "task": {"name": "linear", "dimension": 3, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.05, "local_steps": 1, "batch_size": 4},
    }
    scenario = validate(Scenario, {**values, **WORLDS[name]}, name)
    programs = programs_of(scenario, folder / "programs")
    whole = History(programs, folder / "whole", 3)
    outcome = whole.play()
    assert (outcome.status, outcome.violations) == ("completed", [])
    whole.close()
    cut_off = History(programs, folder / "cut", 3, most_steps=outcome.extent.steps * 2 // 3)
    [stuck] = cut_off.play().violations
    assert "the run does not end" in stuck
    # What the processes have handed to the kernel stays when they are killed.
    shutil.copytree(folder / "cut", folder / "killed")
    (folder / "killed/setup/run").write_text(programs.server.run)
    shutil.rmtree(folder / "cut")
    cut_off.close()
    return World(scenario, programs, folder / "killed", model_hash(folder / "whole"))


def resumed(world: World, folder: Path) -> str:
    """Resume a run, and return the hash of its model; or the sentence with which it failed or was
    refused."""
    try:
        require_resumable(folder, world.scenario)
    except (ConfigError, LedgerError) as error:
        return str(error)
    history = History(world.programs, folder, 3)
    outcome = history.play()
    found = "; ".join([*outcome.failures, *outcome.violations])
    if outcome.status == "completed":
        found = model_hash(folder)
    shutil.rmtree(folder)
    history.close()
    return found


def copies(world: World, tmp_path: Path, pattern: str, number: int) -> Iterator[tuple[Path, Path]]:
    """Copies of the killed run's folder, each with one of the files that match. The files of a
    ledger are also those that a checkpoint has left."""
    for checkpointed in (False, True) if pattern.startswith("ledger") else (False,):
        folder = Path(shutil.copytree(world.killed, tmp_path / "copy"))
        if checkpointed:
            Ledger(folder / "ledger.sqlite").close()
        if found := sorted(folder.glob(pattern)):
            yield folder, found[number % len(found)]
        shutil.rmtree(folder, ignore_errors=True)


def test_a_killed_run_ends_with_the_same_model(
    worlds: Callable[[str], World], tmp_path: Path
) -> None:
    for name in WORLDS:
        world = worlds(name)
        folder = Path(shutil.copytree(world.killed, tmp_path / name))
        for pattern in FILES[name]:
            assert list(folder.glob(pattern)) or pattern == "ledger.sqlite-sums"
        assert resumed(world, folder) == world.expected


@pytest.mark.sampled(30)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("damage", [damage for damage, _ in DAMAGES])
@pytest.mark.parametrize(
    ("name", "pattern"), [(name, pattern) for name in WORLDS for pattern in FILES[name]]
)
def test_damage_is_recovered_exactly_or_refused_by_name(
    worlds: Callable[[str], World], tmp_path: Path, name: str, pattern: str, damage: Damage
) -> None:
    world, times, tried = worlds(name), TIMES * dict(DAMAGES)[damage], 0
    wrong = []
    for number in range(times):
        for folder, path in copies(world, tmp_path, pattern, number):
            before = path.read_bytes()
            if not before:
                continue
            at = f"{name} {path.relative_to(folder)} {number}"
            path.write_bytes(damage(bytearray(before), random.Random(at)))
            tried += 1
            found = resumed(world, folder)
            named = path.name.removesuffix("-wal") in found
            if found != world.expected and not named:
                wrong.append(f"{at}, {damage.__name__}: {found}")
    assert tried
    assert not wrong
