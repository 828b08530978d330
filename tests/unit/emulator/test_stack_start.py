"""What is told when a fleet of `muster up --swarm` does not come up, whenever Docker learns of a
death."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.common.errors import LaunchFailed
from muster.emulator.detached.stack_start import wait_for_a_round
from muster.emulator.following.run_progress import RunProgress
from muster.emulator.run_folder.journal_tail import Tail

FAILED = {
    "event": "ended",
    "status": "failed",
    "detail": "the evaluation process ended",
    "bytes_up": 0,
    "bytes_down": 0,
}
TORCH = ". The last lines of its log:\n  | No module named 'torch'"
SERVER = {"server": "1. It left no log"}

Known = list[tuple[float, dict[str, str], dict[str, str]]]
"""From when on what is known: what is dead, and what was restarted."""

KNOWN: dict[str, Known] = {
    "at once": [(0.0, {**SERVER, "evaluation": f"1{TORCH}"}, {})],
    "the server later": [
        (0.0, {}, {"evaluation": TORCH}),
        (2.0, SERVER, {"evaluation": TORCH}),
    ],
    "the evaluation later": [
        (0.0, SERVER, {"dev-0000": ""}),
        (2.0, SERVER, {"evaluation": TORCH, "dev-0000": ""}),
    ],
}


class LateDeaths:
    """A swarm and a clock: which deaths are known depends on the time."""

    def __init__(self, known: Known) -> None:
        self._known, self._now = known, 0.0

    def dead(self, patient: bool = True) -> dict[str, str]:
        return dict([dead for at, dead, _ in self._known if at <= self._now][-1])

    def restarted(self) -> dict[str, str]:
        return dict([again for at, _, again in self._known if at <= self._now][-1])

    def monotonic(self) -> float:
        return self._now

    def pause(self, seconds: float) -> None:
        self._now += seconds


def told(folder: Path, known: Known, *lines: dict[str, Any]) -> str:
    journal = folder / "journal.jsonl"
    tail = Tail(journal)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    late: Any = LateDeaths(known)
    deploying: Any = SimpleNamespace(poll=lambda: None, returncode=None)
    with pytest.raises(LaunchFailed) as failed:
        wait_for_a_round(late, folder, deploying, tail, RunProgress(), lambda said: None, late)
    return str(failed.value)


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN.keys())
def test_the_death_behind_a_failed_run_is_told(known: Known, tmp_path: Path) -> None:
    said = told(tmp_path, known, FAILED)
    assert said.startswith("the run failed: the evaluation process ended\nevaluation ")
    assert "No module named 'torch'" in said
    assert "server ended with status 1" in said


def test_a_server_that_dies_without_a_word_is_told_after_what_died_before_it(
    tmp_path: Path,
) -> None:
    said = told(tmp_path, KNOWN["the evaluation later"])
    assert said.startswith("evaluation died and was started again")
    assert said.index("No module named 'torch'") < said.index("server ended with status 1")


def test_a_server_that_fails_by_itself_is_told_after_a_while(tmp_path: Path) -> None:
    failed = {**FAILED, "detail": "the disk is broken"}
    said = told(tmp_path, [(0.0, SERVER, {})], failed)
    assert said.startswith("the run failed: the disk is broken\nserver ended with status 1")
