"""Whole runs in which the devices of a process train at the same time."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.retraining import last_model

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run

TASKS: dict[str, dict[str, Any]] = {
    "linear": {"name": "linear", "dimension": 5, "heterogeneity": 1.0, "examples_per_client": 12},
    "mlp": {"name": "digits", "model": {"kind": "mlp", "hidden": [8]}},
}

PHONES = {"profile": "phone", "examples_per_s": {"kind": "log-normal", "median": 50, "sigma": 1}}


def scenario(task: str, together: int, **sections: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "together",
        "seed": 5,
        "task": TASKS.get(task, {"name": "digits", "model": task}),
        "training": {"learning_rate": 0.05, "batch_size": 5, "together": together},
        "server": {"rounds": 8},
        "groups": [
            {"name": "dev", "count": 7, "devices_per_process": 4},
            {"name": "long", "count": 3, "devices_per_process": 3, "training": {"local_steps": 9}},
        ],
    }
    return validate(Scenario, {**values, **sections}, "together")


def hash_of(read: Scenario, folder: Path, kills: Sequence[KillAt] = ()) -> str:
    assert simulate_run(read, folder, kills) == "completed"
    return str(json.loads((folder / "summary.json").read_text())["model_sha256"])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("inline", [True, False], ids=["inline", "bulk"])
def test_the_model_is_that_of_devices_one_after_the_other(
    task: str, inline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not inline:
        monkeypatch.setattr("muster.server.rpc.service.INLINE_BYTES", 1)
    hashes = {}
    for together in (1, 2, 100):
        hashes[together] = hash_of(scenario(task, together), tmp_path / str(together))
    assert hashes[2] == hashes[100], "the bits do not depend on how many train at the same time"
    alone, both = (last_model(tmp_path / each) for each in ("1", "2"))
    assert both == pytest.approx(alone, rel=0, abs=1e-5 * float(np.abs(alone).max()))


def test_a_killed_process_changes_no_bit_of_devices_that_live_and_send_false_updates(
    tmp_path: Path,
) -> None:
    read = scenario(
        "mlp",
        5,
        groups=[{"name": "dev", "count": 12, "devices_per_process": 6, "device": PHONES}],
        clock={"kind": "rounds", "round_s": 600.0},
        server={"rounds": 12},
        faults=[{"do": "label-flip", "target": {"count": 2}, "when": {"round": 2}}],
    )
    undisturbed = hash_of(read, tmp_path / "undisturbed")
    # The updates that the devices had stored are sent; the others train again, with fewer beside.
    kills = [
        KillAt("dev-0000..dev-0005", "received", 4),
        KillAt("dev-0000..dev-0005", "round_opened", 6),
        KillAt("server", "received", 9),
    ]
    assert hash_of(read, tmp_path / "killed", kills) == undisturbed


def test_a_model_that_cannot_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.together: expected a linear model"):
        simulate_run(scenario("cnn", 2), tmp_path / "run")
