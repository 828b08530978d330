"""Runs of the whole system with real processes and real sockets."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario

MakeScenario = Callable[..., Scenario]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.system)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def scenario() -> MakeScenario:
    """Make a small scenario; keyword arguments replace whole sections."""

    def make(**sections: Any) -> Scenario:
        values: dict[str, Any] = {
            "name": "test",
            "seed": 3,
            "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
            "training": {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8},
            "server": {"rounds": 5},
            "groups": [{"name": "dev", "count": 3}],
        }
        return validate(Scenario, {**values, **sections}, "test")

    return make


def processes_with(text: str) -> list[str]:
    """Return the command lines of running processes whose command line or open files name
    `text`."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                links = [os.readlink(link) for link in (folder / "fd").iterdir()]
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and (text in command or any(text in link for link in links)):
                found.append(command)
    return found


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Assert that after the test no process uses its folder."""
    yield
    assert processes_with(str(tmp_path)) == []
