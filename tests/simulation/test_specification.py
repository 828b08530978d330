"""The specification finds what somebody has changed in the ledger of a good run."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from muster.simulation.fleet import scenario_named
from muster.simulation.history import History
from muster.simulation.invariants import course_of
from muster.simulation.programs import Programs, programs_of
from muster.simulation.specification import differences

Played = Callable[[str], tuple[Programs, Path]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Plays fleets by name, each once."""
    found: dict[str, tuple[Programs, Path]] = {}

    def play(name: str) -> tuple[Programs, Path]:
        if name not in found:
            folder = tmp_path_factory.mktemp("run")
            programs = programs_of(scenario_named(name), tmp_path_factory.mktemp("programs"))
            history = History(programs, folder / "run", 0)
            (folder / "run").mkdir()
            assert history.play().status == "completed"
            shutil.copytree(folder / "run", folder / "kept")
            shutil.rmtree(folder / "run")
            history.close()
            found[name] = programs, folder / "kept"
        return found[name]

    return play


def found_in(played: Played, fleet: str, folder: Path, change: str) -> list[str]:
    programs, run = played(fleet)
    shutil.copy(run / "ledger.sqlite", folder / "ledger.sqlite")
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        if change:
            assert ledger.execute(change).rowcount > 0, "it changes something"
        return list(differences(course_of(programs, ()), ledger, run / "devices"))


_UNCOUNTED = "UPDATE contributions SET outcome"


@pytest.mark.parametrize(
    "fleet", ["inline", "fedvarp", "away", "shared-rounds", "noisy-secure-sums", "private-devices"]
)
def test_a_good_run_has_no_differences(played: Played, fleet: str, tmp_path: Path) -> None:
    assert found_in(played, fleet, tmp_path, "") == []


@pytest.mark.parametrize(
    ("fleet", "change", "words"),
    [
        ("inline", "DELETE FROM rounds WHERE round = 2", "is missing"),
        ("inline", "UPDATE rounds SET version = 3 WHERE round = 2", "ends with version 3"),
        ("inline", "UPDATE rounds SET outcome = 'empty' WHERE round = 2", "2 updates is empty"),
        ("inline", "UPDATE contributions SET staleness = 1 WHERE round = 2", "has staleness 1"),
        ("inline", "DELETE FROM answers WHERE round = 2", "has not accepted"),
        ("inline", "DELETE FROM evaluations WHERE version = 2", "were evaluated, expected"),
        ("inline", "UPDATE contributions SET outcome = 'late' WHERE round = 2", "with a deadline"),
        ("inline", "DELETE FROM contributions WHERE round = 2", "and counted 3"),
        ("fedvarp", "UPDATE memory SET slot = 1 - slot", "remembered"),
        ("fedvarp", "UPDATE answers SET modelled_s = 100 * modelled_s + 100", "finishes at"),
        ("away", "UPDATE rounds SET folded = 5 WHERE round = 4", "expected 2"),
        ("masks", "UPDATE rounds SET called = 9 WHERE round = 2", "assignments are open"),
        (
            "fedvarp",
            f"{_UNCOUNTED} = 'late', reason = 'stale', staleness = 1",
            "is too stale with 1",
        ),
        ("inline", f"{_UNCOUNTED} = 'refused', reason = 'other body'", "is refused: other body"),
        (
            "fedvarp",
            "UPDATE answers SET decision = 'abort', reason = 'drop-out' WHERE round = 2",
            "gave up",
        ),
        ("fleet-14", "UPDATE rounds SET epsilon = 1.1 * epsilon", "leaks more or less than δ"),
        ("private-devices", "UPDATE rounds SET epsilon = 0.9 * epsilon", "leaks more or less"),
        ("noisy-secure-sums", "UPDATE rounds SET epsilon = 0.9 * epsilon", "leaks more or less"),
        ("noisy-secure-sums", "UPDATE rounds SET epsilon = 1.1 * epsilon", "leaks more or less"),
        ("fleet-25", f"{_UNCOUNTED} = 'dropped' WHERE round = 3", "another control variate"),
        ("away", "UPDATE rounds SET scenario_s = scenario_s + 60", "at step"),
        ("away", "DELETE FROM answers WHERE round < 4", "of late"),
        ("fleet-26", "UPDATE rounds SET next_s = 0", "and its work at"),
    ],
)
def test_a_change_is_found(
    played: Played, fleet: str, change: str, words: str, tmp_path: Path
) -> None:
    assert any(words in line for line in found_in(played, fleet, tmp_path, change))


def test_it_imports_nothing_of_the_product() -> None:
    source = (Path(__file__).parents[2] / "emulator/muster/simulation/specification.py").read_text()
    assert "muster." not in source
    assert len(source.splitlines()) <= 400
