"""The same test body over a simulated and over a real fleet."""

from pathlib import Path
from typing import Any

import pytest

from muster.common.errors import RunFailed
from muster.testing import (
    KillAt,
    RealFleet,
    SimulatedFleet,
    assert_never_counted_twice,
    assert_participation,
    assert_same_model,
)
from muster.testing.fleets import FleetRunner

SCENARIO: dict[str, Any] = {
    "name": "pair",
    "seed": 3,
    "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
    "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
    "server": {"rounds": 200, "aggregator": "fedavgm"},
    "groups": [{"name": "dev", "count": 4}],
}


def body(fleet: FleetRunner) -> str:
    """A test as a user writes it; it returns the checksum of the model."""
    undisturbed = fleet.run(SCENARIO)
    server_died = fleet.run(
        SCENARIO,
        KillAt("server", "round_committed", 2),
        KillAt("server", "round_committed", 60),
    )
    device_died = fleet.run(SCENARIO, KillAt("dev-0002", "round_opened", 3))
    for run in (server_died, device_died):
        assert_same_model(run, undisturbed)
        assert_never_counted_twice(run)
        assert_participation(run, at_least=1.0)
    return str(undisturbed.summary["model_sha256"])


def test_one_body_serves_for_both_fleets(tmp_path: Path) -> None:
    simulated, real = (
        kind(tmp_path / kind.__name__, tmp_path) for kind in (SimulatedFleet, RealFleet)
    )
    assert body(simulated) == body(real)


def test_a_real_kill_without_its_process_is_told(tmp_path: Path) -> None:
    fleet = RealFleet(tmp_path, tmp_path)
    with pytest.raises(RunFailed, match=r"nobody was to die at round_opened .* no such process"):
        fleet.run(SCENARIO, KillAt("nobody", "round_opened", 2))
