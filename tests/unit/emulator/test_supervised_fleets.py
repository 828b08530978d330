"""A fleet of `muster up` and its supervisor: how it begins, and how it is ended; no Docker."""

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError, LaunchFailed, RunFailed
from muster.emulator.detached.supervised_start import FirstRound, failure_in
from muster.emulator.detached.up import RESTARTS, left_running
from muster.emulator.following.run_progress import RunProgress
from muster.emulator.launch.docker.compose_containers import published_port
from muster.emulator.run_folder import supervisor_socket
from muster.emulator.run_folder.folder import (
    COMPOSE,
    DETACHED_LOG,
    LEDGER,
    SCENARIO,
    afresh,
    has_detached_supervisor,
    resume_advice,
    resume_command,
)
from muster.emulator.run_folder.supervisor_socket import end_supervisor
from muster.emulator.scenario.scenario import Scenario

STARTED = {
    "event": "server_started",
    "population": 2,
    "rounds": 5,
    "round": 0,
    "version": 0,
    "bytes_up": 0,
    "bytes_down": 0,
}
COMMITTED = {
    "event": "round_committed",
    "at": 1.0,
    "round": 1,
    "version": 1,
    "outcome": "folded",
    "called": 2,
    "folded": 2,
    "seconds": 1.0,
    "bytes_up": 1,
    "bytes_down": 1,
}
DIED = {"event": "died", "process": "dev-0001", "status": 1}


class Pausing:
    """A clock on which only pauses take time.

    Attributes:
        paused: called after every pause.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.paused: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.paused()


def scenario(**launch: Any) -> Scenario:
    values = {"name": "x", "task": {"name": "linear"}, "server": {"rounds": 1}, "launch": launch}
    return validate(Scenario, {**values, "groups": [{"name": "dev", "count": 2}]}, "test")


def first_round(folder: Path) -> tuple[FirstRound, list[str]]:
    said: list[str] = []
    clock: Any = Pausing()
    return FirstRound(folder, RunProgress(), said.append, clock), said


def test_a_fleet_that_is_left_running_has_restarts_unless_its_scenario_says_how_many() -> None:
    assert left_running(scenario()).launch.restarts == RESTARTS
    assert left_running(scenario(restarts=0)).launch.restarts == 0


def test_the_steps_of_a_start_are_told(tmp_path: Path) -> None:
    first, said = first_round(tmp_path)
    first.happen([{"event": "started", "process": "nursery"}, STARTED])
    first.happen([{"event": "started", "process": "server"}])
    first.happen([{"event": "enrolled", "client": f"dev-000{n}"} for n in range(2)])
    first.happen([COMMITTED])
    assert first.committed
    assert said == [
        "making containers",
        "0 of 2 devices enrolled",
        "starting devices",
        "2 of 2 devices enrolled",
    ]


def test_what_dies_again_and_again_before_the_first_round_ends_the_start_with_its_log(
    tmp_path: Path,
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/dev-0001.log").write_text("No module named 'torch'\n")
    first, _ = first_round(tmp_path)
    first.happen([DIED, DIED])
    with pytest.raises(LaunchFailed, match="dev-0001 died 3 times"):
        first.happen([DIED])
    (told,) = first.deaths()
    assert told.startswith("dev-0001 ended with status 1. The last lines of its log:")
    assert "No module named 'torch'" in told


def test_deaths_after_the_first_round_are_the_supervisors_business(tmp_path: Path) -> None:
    first, _ = first_round(tmp_path)
    first.happen([COMMITTED, DIED, DIED, DIED])


def test_the_port_of_a_service_is_read_from_the_file_that_a_person_may_have_edited(
    tmp_path: Path,
) -> None:
    file = tmp_path / COMPOSE
    file.write_text("services: {server: {ports: ['127.0.0.1:40001:7100', '127.0.0.1:1:2']}}")
    assert published_port(file, "server") == 40001
    for wrong in ("[", "services: {}", "services: {server: {ports: ['7100']}}", ""):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match=r"services\.server\.ports"):
            published_port(file, "server")


@pytest.mark.parametrize(
    ("compose", "command", "options"),
    [(None, "run", ""), ("services:\n", "up", ""), ("x-swarm:\n", "up", "--swarm ")],
    ids=["run", "up", "swarm"],
)
def test_a_run_is_resumed_and_begun_anew_by_the_command_that_began_it(
    tmp_path: Path, compose: str | None, command: str, options: str
) -> None:
    (tmp_path / SCENARIO).write_text("modules = '/where/it/is'")
    if compose is not None:
        (tmp_path / COMPOSE).write_text(compose)
    assert resume_command(tmp_path) == f"muster {command} --resume {tmp_path}"
    advice = afresh(tmp_path)
    assert advice.endswith(f": muster {command} {tmp_path}/{SCENARIO} {options}--out OTHER")
    assert advice in resume_advice(tmp_path, "")
    (tmp_path / LEDGER).touch()
    assert advice in resume_advice(tmp_path, "")


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Any]:
    """The lock of a supervisor that is at work in `tmp_path`."""
    for part in ("setup", "logs"):
        (tmp_path / part).mkdir()
    (tmp_path / DETACHED_LOG).touch()
    with open(tmp_path / "setup/lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def test_a_supervisor_is_asked_once_for_an_orderly_end_and_awaited(
    tmp_path: Path, supervised: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    clock: Any = Pausing()

    def ask(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        assert request == {"stop": {}}
        asked.append(clock.now_s)
        return {}

    def go() -> None:
        if clock.now_s > 10:
            fcntl.flock(supervised, fcntl.LOCK_UN)

    monkeypatch.setattr(supervisor_socket, "ask_supervisor", ask)
    clock.paused = go
    assert has_detached_supervisor(tmp_path)
    end_supervisor(tmp_path, clock)
    assert asked == [0.0]
    assert not has_detached_supervisor(tmp_path)


def test_a_supervisor_that_does_not_end_is_asked_again_and_then_told_of(
    tmp_path: Path, supervised: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    clock: Any = Pausing()

    def ask(folder: Path, request: object) -> dict[str, Any]:
        asked.append(request)
        return {}

    monkeypatch.setattr(supervisor_socket, "ask_supervisor", ask)
    with pytest.raises(RunFailed, match="does not end"):
        end_supervisor(tmp_path, clock)
    assert len(asked) == 2


@pytest.mark.parametrize(("status", "kind"), [(1, LaunchFailed), (2, ConfigError)])
def test_a_failure_is_told_with_the_lines_of_logs_that_it_quotes(
    tmp_path: Path, status: int, kind: type[Exception]
) -> None:
    said = "the evaluation process ended. The last lines of its log:\n  | import error: torch"
    before = "error: an earlier one\n"
    log = tmp_path / DETACHED_LOG
    log.parent.mkdir(exist_ok=True)
    log.write_text(f"{before}a warning\nerror: {said}\n")
    failure = failure_in(tmp_path, status, len(before))
    assert (type(failure), str(failure)) == (kind, said)
