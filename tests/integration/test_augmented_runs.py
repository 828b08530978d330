"""Whole runs whose devices augment their minibatches, with kills."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.turns import killed_at_turns

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run

CALLS: list[int] = []


def counted(x: Any, generator: Any) -> Any:
    CALLS.append(len(x))
    return x


def scenario(**more: Any) -> Scenario:
    group = {"name": "dev", "count": 3, **more.pop("group", {})}
    values: dict[str, Any] = {
        "name": "augmented",
        "seed": 2,
        "task": {"name": "digits", "model": {"kind": "cnn", "channels": 2, "hidden": 4}},
        "training": {
            "local_epochs": 2,
            "batch_size": 200,
            "augmentations": [{"kind": "crop", "padding": 1}, "flip", "noise"],
        },
        "server": {"rounds": 4},
        "groups": [group],
    }
    return validate(Scenario, values | more, "test")


def model(folder: Path, kills: Sequence[KillAt] = (), **more: Any) -> bytes:
    simulate_run(scenario(**more), folder, kills)
    return (folder / "model.safetensors").read_bytes()


def test_kills_leave_the_model_of_a_run_without_kills(tmp_path: Path) -> None:
    whole = model(tmp_path / "whole")
    assert model(tmp_path / "killed", killed_at_turns(1)) == whole
    assert model(tmp_path / "pack", group={"devices_per_process": 3}) == whole
    assert model(tmp_path / "plain", group={"training": {"augmentations": []}}) != whole


def test_nothing_that_is_measured_is_augmented(tmp_path: Path) -> None:
    CALLS.clear()
    training = {"local_steps": 2, "augmentations": [f"{__name__}:counted"]}
    server = {"rounds": 2, "evaluate_on": "both"}
    assert simulate_run(scenario(training=training, server=server), tmp_path) == "completed"
    assert len(CALLS) == 2 * 2 * 3  # rounds · steps · devices
