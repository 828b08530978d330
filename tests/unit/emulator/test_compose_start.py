"""What is told when a fleet of `muster up` does not come up, whenever Docker learns of a death."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.common.errors import LaunchFailed
from muster.emulator.launch.docker.compose_start import ContainerDeaths, wait_for_a_round
from muster.emulator.launch.docker.services import NAME_LABEL
from muster.emulator.runs.journal_tail import Tail
from muster.emulator.runs.run_progress import RunProgress

FAILED = {
    "event": "ended",
    "status": "failed",
    "detail": "the evaluation process ended",
    "bytes_up": 0,
    "bytes_down": 0,
}
LOGS = {"server": b"", "evaluation": b"No module named 'torch'\n", "dev-0000": b"no gateway\n"}


def container(name: str, status: str = "running", ended: int = 0, restarts: int = 0) -> Any:
    return SimpleNamespace(
        name=name,
        labels={NAME_LABEL: name},
        status=status,
        attrs={
            "State": {"ExitCode": ended},
            "HostConfig": {"RestartPolicy": {"Name": "" if name == "server" else "on-failure"}},
            "RestartCount": restarts,
        },
        logs=lambda tail: LOGS[name],
    )


class LateDocker:
    """A daemon and a clock: what the daemon knows depends on the time."""

    def __init__(self, known: list[tuple[float, list[Any]]]) -> None:
        self._known, self._now = known, 0.0
        self.containers = self

    def list(self, **asked: Any) -> list[Any]:
        return [found for at, found in self._known if at <= self._now][-1]

    def monotonic(self) -> float:
        return self._now

    def pause(self, seconds: float) -> None:
        self._now += seconds


ENDED = container("server", "exited", 1)
KNOWN = {
    "at once": [(0.0, [ENDED, container("evaluation", "exited", 1)])],
    "the server later": [
        (0.0, [container("server"), container("evaluation", restarts=1)]),
        (2.0, [ENDED, container("evaluation", restarts=1)]),
    ],
    "the evaluation later": [
        (0.0, [ENDED, container("evaluation"), container("dev-0000", restarts=1)]),
        (2.0, [ENDED, container("evaluation", restarts=1), container("dev-0000", restarts=1)]),
    ],
}


def told(folder: Path, known: list[tuple[float, list[Any]]], *lines: dict[str, Any]) -> str:
    journal = folder / "journal.jsonl"
    tail = Tail(journal)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    late: Any = LateDocker(known)
    compose: Any = SimpleNamespace(poll=lambda: None, returncode=None)
    say: Callable[[str], None] = lambda said: None  # noqa: E731
    deaths = ContainerDeaths(late, folder)
    with pytest.raises(LaunchFailed) as failed:
        wait_for_a_round(deaths, folder, compose, "compose", tail, RunProgress(), say, late)
    return str(failed.value)


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN.keys())
def test_the_death_behind_a_failed_run_is_told(
    known: list[tuple[float, list[Any]]], tmp_path: Path
) -> None:
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
    said = told(tmp_path, [(0.0, [ENDED, container("evaluation")])], failed)
    assert said.startswith("the run failed: the disk is broken\nserver ended with status 1")
