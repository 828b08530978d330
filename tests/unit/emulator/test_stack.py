"""What is told of the services of a swarm, on made-up services; no Docker."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from muster.emulator.launch.docker.services import NAME_LABEL
from muster.emulator.launch.docker.stack import TaskDeaths, problems
from muster.emulator.run_folder.folder import is_stack

FOLDER = Path("/runs/first")


def task(number: int, state: str, error: str = "", code: int = 0) -> dict[str, Any]:
    status = {"State": state, "Err": error, "ContainerStatus": {"ExitCode": code}}
    return {"CreatedAt": f"2026-11-24T10:00:{number:02}Z", "Status": status}


def service(name: str, *tasks: dict[str, Any], again: bool = True, log: bytes = b"") -> Any:
    def logs(**asked: Any) -> list[bytes]:
        if not log:
            raise docker.errors.APIError("no such log")
        return [log]

    condition = "on-failure" if again else "none"
    spec = {
        "Labels": {NAME_LABEL: name},
        "TaskTemplate": {"RestartPolicy": {"Condition": condition}},
    }
    return SimpleNamespace(
        name=f"muster-1_{name}", attrs={"Spec": spec}, tasks=lambda: list(tasks), logs=logs
    )


def swarm(*services: Any) -> Any:
    return SimpleNamespace(services=SimpleNamespace(list=lambda filters: list(services)))


FAILED = [task(number, "failed", "task: non-zero exit (1)", 1) for number in range(3)]


def test_a_service_that_keeps_failing_is_dead_and_one_that_may_yet_run_is_not() -> None:
    often = service("dev-0000", *FAILED, log=b"No module named 'torch'\n")
    once = service("dev-0001", FAILED[0], task(1, "starting"))
    last = service("server", FAILED[0], again=False)
    deaths = TaskDeaths(
        swarm(often, once, last, service("gateway-dev", task(0, "running"))), FOLDER
    )
    found = deaths.dead()
    assert found.keys() == {"dev-0000", "server"}
    assert "No module named 'torch'" in found["dev-0000"]
    assert found["server"] == "1"
    assert deaths.dead(patient=False).keys() == {"dev-0000", "dev-0001", "server"}


def test_an_image_that_a_machine_lacks_is_told_in_the_words_of_the_swarm() -> None:
    rejected = [task(number, "rejected", "No such image: x:1") for number in range(3)]
    assert TaskDeaths(swarm(service("dev-0000", *rejected)), FOLDER).dead() == {
        "dev-0000": "rejected (No such image: x:1)"
    }


def test_what_died_and_runs_again_is_told_with_its_log() -> None:
    back = service("evaluation", task(1, "running"), FAILED[0], log=b"out of memory\n")
    going = service("dev-0000", task(0, "failed", code=1), task(1, "starting"))
    (found,) = TaskDeaths(swarm(back, going), FOLDER).restarted().items()
    assert found[0] == "evaluation"
    assert "out of memory" in found[1]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([task(1, "running"), task(0, "failed", code=1)], None),
        ([task(0, "complete")], None),
        ([task(1, "pending", "no suitable node"), FAILED[0]], "pending (no suitable node)"),
        ([task(1, "starting"), FAILED[0]], "starting"),
        ([task(1, "failed", code=137)], "137"),
    ],
)
def test_services_that_do_not_run_are_named_with_the_reason(
    tasks: list[dict[str, Any]], said: str | None
) -> None:
    found = list(problems(swarm(service("dev-0000", *tasks)), FOLDER))
    if said is None:
        assert found == []
    else:
        assert found[0].startswith(f"dev-0000 does not run: {said}; ")
        assert "`docker service ps muster-1_dev-0000`" in found[0]


def test_a_stack_is_known_by_its_file(tmp_path: Path) -> None:
    assert not is_stack(tmp_path)
    (tmp_path / "docker-compose.yml").write_text("services: {}\n")
    assert not is_stack(tmp_path)
    (tmp_path / "docker-compose.yml").write_text("version: '3.9'\nx-swarm: {node: n0}\n")
    assert is_stack(tmp_path)
