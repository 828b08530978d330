"""Tests with real Ray clusters of several nodes on this machine: `make test-ray`. They are skipped
if Ray is not installed (the extra `ray`) or not asked for."""

import json
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import nothing_left, scenario

__all__ = ["nothing_left", "scenario"]


HAS_RAY = os.environ.get("MUSTER_TEST_RAY") == "1" and find_spec("ray") is not None

if HAS_RAY:  # now, because modules that a test imports are forgotten after it
    import ray
    import ray.cluster_utils


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ray: starts nodes of a Ray cluster on this machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        item.add_marker(pytest.mark.ray)
        item.add_marker(pytest.mark.timeout(300))
        # Ray leaves sockets and files to the garbage collector.
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        item.add_marker(
            pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
        )
        if not HAS_RAY:
            item.add_marker(pytest.mark.skip(reason="Ray clusters: make test-ray"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster whose one node has a core and the label `place=head`."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    settings = {"num_cpus": 1, "include_dashboard": False, "labels": {"place": "head"}}
    made = ray.cluster_utils.Cluster(initialize_head=True, head_node_args=settings)
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def model_of(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["model_sha256"])


def at_round(number: int, act: Callable[[], None]) -> Callable[[dict[str, Any]], None]:
    """Do something once, in the middle of the run: when a round has been committed."""
    done: list[bool] = []

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] >= number and not done:
            done.append(True)
            act()

    return show
