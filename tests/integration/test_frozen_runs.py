"""Whole runs with a model of which a part is frozen: its entries keep their bits everywhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

FROZEN = ("1.weight", "3.bias")


def half_frozen(inputs: tuple[int, ...], outputs: int, *, frozen: int = 2) -> nn.Module:
    """A perceptron of which tensors are frozen. Some frozen entries are -0, whose sign is lost if
    anything is added."""
    torch.manual_seed(1)
    layers = nn.Linear(inputs[0], 4), nn.ReLU(), nn.Linear(4, outputs)
    module = nn.Sequential(nn.Flatten(), *layers)
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        parameters["1.weight"][0] = -0.0
        parameters["3.bias"].fill_(0.3)
    for name in (*FROZEN, "1.bias", "3.weight")[:frozen]:
        parameters[name].requires_grad_(False)
    return module


def scenario(**more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "frozen",
        "seed": 4,
        "task": {
            "name": "linear",
            "dimension": 5,
            "heterogeneity": 1.0,
            "model": {"kind": f"{__name__}:half_frozen", **more.pop("model", {})},
        },
        "training": {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8}
        | more.pop("training", {}),
        "server": {"rounds": 4, "keep_updates": True, **more.pop("server", {})},
        "groups": [{"name": "fast", "count": 4, **more.pop("group", {})}],
    }
    return validate(Scenario, {**values, **more}, "test")


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "ridge and proximal term": {
        "training": {
            "proximal_mu": 0.5,
            "clip_norm": 0.5,
            "optimizer": {"kind": "adam", "weight_decay": 0.1},
        },
    },
    "momentum": {"training": {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.1}}},
    "projection": {"training": {"projection_radius": 0.5}},
    "gradients": {"training": {"gradient": True, "local_steps": 1}},
    "noise of devices": {
        "server": {"privacy": {"clip": 0.5, "noise": 1.0, "where": "device"}},
    },
    "noise of the server": {
        "server": {"privacy": {"clip": 0.5, "noise": 1.0}, "keep_updates": False},
    },
    "average": {"server": {"aggregator": {"kind": "agnostic", "offer": "average"}}},
    "scaffold": {"server": {"aggregator": "scaffold"}},
    "yogi and a codec": {
        "server": {"aggregator": "fedyogi"},
        "group": {"link": {"compression": {"kind": "int8"}}},
    },
    "top-k": {"group": {"link": {"compression": {"kind": "top-k", "ratio": 0.3}}}},
    "masks": {
        "server": {"keep_updates": False},
        "group": {"mask": {"kind": "random"}, "device": {"capacity": 0.5}},
    },
    "attack": {
        "faults": [
            {
                "name": "big",
                "do": "huge",
                "target": {"group": "fast", "count": 1},
                "when": {"round": 2},
            }
        ]
    },
}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())
def test_frozen_tensors_keep_their_bits(tmp_path: Path, values: dict[str, Any]) -> None:
    values = {
        key: dict(value) if isinstance(value, dict) else value for key, value in values.items()
    }
    simulate_run(scenario(**values), tmp_path / "run")
    begin = load_file(tmp_path / "run/setup/initial.safetensors")
    end = load_file(tmp_path / "run/model.safetensors")
    for name in begin:
        moved = begin[name].tobytes() != end[name].tobytes()
        assert moved == (name not in FROZEN), name
    result = audit(tmp_path / "run")
    assert result.agrees, result.first
    assert np.signbit(end["1.weight"][0]).all()


def test_a_model_that_trains_nothing_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no parameter of the model is trained"):
        simulate_run(scenario(model={"frozen": 4}), tmp_path / "run")


def test_devices_that_train_together_refuse_a_frozen_part(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must train all of its parameters"):
        simulate_run(
            scenario(training={"together": 2}, group={"devices_per_process": 4}), tmp_path / "run"
        )


def test_only_frozen_tensors_are_named_in_the_run_folder(tmp_path: Path) -> None:
    simulate_run(scenario(), tmp_path / "run")
    text = (tmp_path / "run/setup/server.json").read_text()
    assert text.count('"trained":false') == len(FROZEN)
    simulate_run(scenario(model={"frozen": 0}), tmp_path / "free")
    assert "trained" not in (tmp_path / "free/setup/server.json").read_text()
