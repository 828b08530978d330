"""Runs of the whole system with real processes and real sockets."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.chaos.run_processes import processes_with
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


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Assert that after the test no process uses its folder."""
    yield
    assert processes_with(str(tmp_path)) == []
