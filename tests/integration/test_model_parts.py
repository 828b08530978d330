"""Whole runs with a model of which a part is frozen and a part is counted by forward passes.

What the parts must be follows from PyTorch alone: `trained_alone` trains every device with a loop
of its own, and the server's part is a mean.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.records.account import Account
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run
from muster.tasks.opening import opened

FROZEN = ("features.weight", "features.bias", "scale")
TRAINED = ("norm.weight", "norm.bias", "output.weight", "output.bias")
COUNTED = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
CONSTANT = ("order", "table")


class Parts(nn.Module):
    """A network with every kind of entry."""

    def __init__(self, inputs: int, outputs: int, trains: bool) -> None:
        super().__init__()
        self.features = nn.Linear(inputs, 4)
        self.norm = nn.BatchNorm1d(4)
        self.output = nn.Linear(4, outputs)
        self.scale = nn.Parameter(torch.tensor(0.5, dtype=torch.bfloat16))
        self.register_buffer("order", torch.tensor([3, 2, 1, 0]))
        self.register_buffer("table", torch.ones(4), persistent=False)
        for name in FROZEN:
            self.get_parameter(name).requires_grad_(False)
        if not trains:
            self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.features(x.flatten(1)) * self.scale.float())
        return torch.as_tensor(self.output(hidden[:, self.order] * self.table))


def parts(inputs: tuple[int, ...], outputs: int, *, trains: bool = True) -> nn.Module:
    return Parts(inputs[0], outputs, trains)


def plain(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    """A linear map with a tied weight and a weight that is parametrized: parameters only."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(inputs[0], inputs[0]), nn.Linear(inputs[0], 1))
    return nn.utils.parametrizations.weight_norm(module[1]) and module


def scenario(**more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "parts",
        "seed": 4,
        "task": {
            "name": "linear",
            "dimension": 5,
            "heterogeneity": 1.0,
            "model": {"kind": f"{__name__}:parts", **more.pop("model", {})},
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
    "average": {"server": {"aggregator": {"kind": "agnostic", "offer": "average"}}},
    "yogi and a codec": {
        "server": {"aggregator": "fedyogi"},
        "group": {"link": {"compression": {"kind": "int8"}}},
    },
    "median": {"server": {"aggregator": "median"}},
    "top-k": {"group": {"link": {"compression": {"kind": "top-k", "ratio": 0.3}}}},
    "one after the other": {
        "server": {"aggregator": "fedasync", "mode": {"kind": "buffered", "k": 1}}
    },
    "partial sums": {
        "group": {"devices_per_process": 4, "partial_sums": True},
        "server": {"keep_updates": False},
    },
}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())
def test_what_is_trained_or_counted_travels_and_is_evaluated(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    values = {
        key: dict(value) if isinstance(value, dict) else value for key, value in values.items()
    }
    asked = scenario(**values)
    simulate_run(asked, tmp_path / "run")
    begin = load_file(tmp_path / "run/setup/initial.safetensors")
    end = load_file(tmp_path / "run/model.safetensors")
    assert {*begin} == {*end} == {*TRAINED, *COUNTED}
    for name in begin:
        assert begin[name].tobytes() != end[name].tobytes(), name
    result = audit(tmp_path / "run")
    assert result.agrees, result.first
    if asked.server.aggregator.kind != "agnostic":  # it offers another model than the newest one
        _require_loss(asked, tmp_path / "run", end)


def _require_loss(asked: Scenario, folder: Path, end: dict[str, Any]) -> None:
    """The last loss of the run is that of the model in its folder, by PyTorch alone."""
    task = opened(asked.task, asked.devices, asked.seed)
    module = task.module()
    missing, unknown = module.load_state_dict(
        {name: torch.from_numpy(value) for name, value in end.items()}, strict=False
    )
    assert set(missing) == {*FROZEN, "order"}
    assert not unknown
    module.eval()
    test = task.test()
    with torch.no_grad():
        found = nn.functional.mse_loss(
            module(torch.from_numpy(test.x)).squeeze(1), torch.from_numpy(test.y)
        )
    with Account(folder) as account:
        last = account.evaluations["loss"].iloc[-1]
    assert last == pytest.approx(0.5 * found.item(), rel=1e-5)


def trained_alone(module: nn.Module, start: dict[str, Any], x: Tensor, y: Tensor) -> nn.Module:
    """A device's model after three steps over all of its examples, from a plain loop."""
    module.load_state_dict({n: torch.from_numpy(v) for n, v in start.items()}, strict=False)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.05)
    module.train()
    for _ in range(3):
        optimizer.zero_grad()
        loss = 0.5 * nn.functional.mse_loss(module(x).squeeze(1), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return module


@pytest.mark.parametrize("rule", ["fedavg", {"kind": "fedadam", "rate": 0.01}])
def test_counted_entries_move_by_the_weighted_mean_whatever_the_rule(
    tmp_path: Path, rule: Any
) -> None:
    asked = scenario(
        server={"rounds": 1, "aggregator": rule}, training={"batch_size": "full"}, model={}
    )
    simulate_run(asked, tmp_path / "run")
    begin = load_file(tmp_path / "run/setup/initial.safetensors")
    end = load_file(tmp_path / "run/model.safetensors")
    task = opened(asked.task, asked.devices, asked.seed)
    every, weights = [], []
    for index, count in enumerate(task.examples):
        mine = task.client(index)
        data = torch.from_numpy(mine.x), torch.from_numpy(mine.y)
        every.append(dict(trained_alone(task.module(), begin, *data).state_dict()))
        weights.append(count)
    for name in COUNTED + (TRAINED if rule == "fedavg" else ()):
        expected = np.average([each[name].numpy() for each in every], axis=0, weights=weights)
        np.testing.assert_allclose(end[name], expected, rtol=2e-5, atol=2e-6, err_msg=name)
    assert end["norm.num_batches_tracked"] == 3


def test_a_model_without_buffers_that_change_sends_all_trained_parameters(tmp_path: Path) -> None:
    asked = scenario(
        task={
            "name": "linear",
            "dimension": 5,
            "model": {"kind": f"{__name__}:plain"},
        }
    )
    simulate_run(asked, tmp_path / "run")
    names = [name for name, _ in plain((5,), 1).named_parameters()]
    assert {*load_file(tmp_path / "run/model.safetensors")} == {*names}
    assert any("parametrizations" in name for name in names)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scaffold": ({"server": {"aggregator": "scaffold"}}, "corrects gradients by control variates"),
    "mifa": ({"server": {"aggregator": "mifa"}}, "adds remembered updates to later versions"),
    "fedvarp": ({"server": {"aggregator": "fedvarp"}}, "adds remembered updates"),
    "gradients": (
        {"training": {"gradient": True, "local_steps": 1, "batch_size": "full"}},
        "have no gradient",
    ),
    "masks": (
        {
            "group": {"mask": {"kind": "random"}, "device": {"capacity": 0.5}},
            "server": {"aggregator": "fedplt", "keep_updates": False},
        },
        "a mask says which entries are trained",
    ),
    "together": (
        {"training": {"together": 2}, "group": {"devices_per_process": 4}},
        "must train all of its parameters",
    ),
    "privacy": (
        {"server": {"privacy": {"clip": 0.5, "noise": 1.0, "where": "device"}}},
        "noise can make the buffers norm.running_mean",
    ),
    "nothing to train": (
        {"model": {"trains": False}},
        "no parameter of the model is trained and travels",
    ),
}


@pytest.mark.parametrize(("values", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_makes_no_sense_with_such_a_model_is_refused(
    tmp_path: Path, values: dict[str, Any], why: str
) -> None:
    values = {
        key: dict(value) if isinstance(value, dict) else value for key, value in values.items()
    }
    with pytest.raises(ConfigError, match=why):
        simulate_run(scenario(**values), tmp_path / "run")
