"""The state and the generator of a trainer of the user's own, with kills."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.integration.turns import killed_at_turns

from muster.client.training.trainer import TRAINERS, Trained
from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run
from muster.tasks import parts


def with_momentum(
    task: Any, module: Any, received: Any, examples: Any, settings: Any, *,
    state: dict[str, Any], generator: torch.Generator, bad: bool = False, **named: Any,
) -> Trained:  # fmt: skip
    """One step of SGD, whose momentum lasts from round to round, on drawn examples. It also draws
    from every generator that a library may use."""
    parts.load_vector(module, received)
    rows = torch.randperm(len(examples), generator=generator)[:20].numpy()
    noise = 1e-3 * (random.random() + np.random.rand() + torch.rand(1).item())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1 + noise, momentum=0.9)
    if state:
        optimizer.load_state_dict(state["optimizer"])
    optimizer.zero_grad()
    outputs = module(torch.from_numpy(examples.x[rows]))
    loss = task.loss(outputs, torch.from_numpy(examples.y[rows]))
    loss.backward()
    optimizer.step()
    state["rounds"] = [*state.get("rounds", []), named["round"]]
    state["optimizer"] = {1} if bad else optimizer.state_dict()
    return Trained(parts.vector_of(module) - received, len(examples), float(loss.detach()), 1)


def scenario(folder: Path, bad: bool = False, **more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "keeping",
        "seed": 2,
        "task": {"name": "digits", "model": {"kind": "mlp", "hidden": [4]}},
        "training": {"trainer": {"kind": f"{__name__}:with_momentum", "bad": bad}},
        "server": {"rounds": 5},
        "groups": [{"name": "dev", "count": 3, **more}],
    }
    return validate(Scenario, values, "test")


def model(folder: Path, kills: Sequence[KillAt] = (), **more: Any) -> bytes:
    simulate_run(scenario(folder, **more), folder, kills)
    return (folder / "model.safetensors").read_bytes()


def test_kills_leave_the_model_of_a_run_without_kills(tmp_path: Path) -> None:
    whole = model(tmp_path / "whole")
    assert model(tmp_path / "killed", killed_at_turns(2)) == whole
    assert model(tmp_path / "pack", devices_per_process=3) == whole


def test_a_state_that_cannot_be_kept_is_an_error_of_training(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=re.escape("left state['optimizer'] = {1} of type set")):
        model(tmp_path / "run", bad=True)


def test_only_a_trainer_that_asks_keeps_a_state(tmp_path: Path) -> None:
    own = scenario(tmp_path).training.trainer
    assert own is not None
    assert own.wants == {"state", "generator"}
    assert own.model_dump() == {"kind": f"{__name__}:with_momentum", "bad": False}


def test_a_state_beside_rational_devices_is_refused(tmp_path: Path) -> None:
    participation = {"kind": "rational"}
    with pytest.raises(ConfigError, match="leave out its parameter state"):
        scenario(tmp_path, participation=participation)


@pytest.mark.parametrize("name", ["state", "seed", "task"])
def test_settings_by_the_names_of_what_muster_passes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"muster passes {name} to .*:with_momentum"):
        TRAINERS.parse({"kind": f"{__name__}:with_momentum", name: 3})
