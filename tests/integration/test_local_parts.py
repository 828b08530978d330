"""Whole runs in which some entries of the model stay on their device.

What they must be follows from PyTorch alone: `trained_alone` trains every device with a loop of its
own and keeps its local entries, and the server's part is a mean.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from muster.client.device.memory import Memory
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.tensors import Vector
from muster.emulator.run_audit import audit
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run
from muster.tasks.opening import opened
from muster.tasks.parts import load_local, load_vector, local_bytes, vector_of
from muster.tasks.task import Examples, OpenTask

ROUNDS, COUNT = 3, 4

EXAMPLES = Path(__file__).parents[2] / "examples/models"


def network(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs[0], 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))


def perceptron(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    layers = nn.Linear(inputs[0], 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, outputs)
    return nn.Sequential(nn.Flatten(), *layers)


def scenario(model: str = "network", local: list[str] | None = None, **more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "local-parts",
        "seed": 4,
        "task": {
            "name": "linear",
            "dimension": 5,
            "heterogeneity": 1.0,
            "ridge": 0.1,
            "model": {"kind": f"{__name__}:{model}"},
            "parts": {"local": local or ["1.*"]},
        },
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": "full"}
        | more.pop("training", {}),
        "server": {"rounds": ROUNDS, "evaluate_on": "devices", **more.pop("server", {})},
        "groups": [{"name": "dev", "count": COUNT, **more.pop("group", {})}],
    }
    return validate(Scenario, {**values, **more}, "test")


def kept(folder: Path) -> list[bytes]:
    """The local entries of the devices at the end of a run, from their memories."""
    found = []
    for path in sorted((folder / "devices").iterdir()):
        memory = Memory(path)
        found.append(memory.before(ROUNDS + 1).local)
        memory.close()
    return found


def trained_alone(module: nn.Module, x: Tensor, y: Tensor) -> None:
    """Two steps over all examples, from a plain loop."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, weight_decay=0.1)
    module.train()
    for _ in range(2):
        optimizer.zero_grad()
        loss = 0.5 * nn.functional.mse_loss(module(x).squeeze(1), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


HEAD, NORM = ["2.*"], ["1.*"]


@pytest.mark.parametrize("local", [HEAD, NORM])
def test_local_entries_stay_and_the_rest_is_averaged(tmp_path: Path, local: list[str]) -> None:
    asked = scenario(local=local)
    simulate_run(asked, tmp_path / "run")
    task = opened(asked.task, asked.devices, asked.seed)
    modules = [task.module() for _ in range(COUNT)]
    shared = [n for n in modules[0].state_dict() if not n.startswith(local[0][:2])]
    for _ in range(ROUNDS):
        for index, module in enumerate(modules):
            mine = task.client(index)
            trained_alone(module, torch.from_numpy(mine.x), torch.from_numpy(mine.y))
        for name in shared:
            every = [module.state_dict()[name].double() for module in modules]
            mean = torch.stack(every).mean(0)
            for module in modules:
                module.state_dict()[name].copy_(mean)
    end = load_file(tmp_path / "run/model.safetensors")
    assert {*end} == {*shared}
    for name in shared:
        np.testing.assert_allclose(end[name], modules[0].state_dict()[name], rtol=1e-4, atol=1e-5)
    found = task.module()
    for module, values in zip(modules, kept(tmp_path / "run"), strict=True):
        load_local(found, values)
        for name in module.state_dict().keys() - {*shared}:
            expected = module.state_dict()[name]
            np.testing.assert_allclose(found.state_dict()[name], expected, rtol=1e-4, atol=1e-5)
    assert len({*kept(tmp_path / "run")}) == COUNT
    assert local_bytes(task.module()) not in kept(tmp_path / "run")
    result = audit(tmp_path / "run")
    assert result.agrees, result.first


PACK = {"devices_per_process": 4}
SAME: dict[str, tuple[dict[str, Any], tuple[KillAt, ...]]] = {
    "a killed device": (
        {},
        (KillAt("dev-0001", "received", 2), KillAt("dev-0002", "round_opened", 3)),
    ),
    "a killed server": (
        {},
        (KillAt("server", "round_committed", 1), KillAt("server", "received", 3)),
    ),
    "a killed pack": ({"group": PACK}, (KillAt("dev-0000..dev-0003", "received", 2),)),
    "partial sums": ({"group": {**PACK, "partial_sums": True}}, ()),
}


def often(cases: dict[str, Any], *kept: str) -> list[Any]:
    """The cases as parameters; all but some are played by `make soak` alone."""
    return [
        pytest.param(case, id=name, marks=[] if name in kept else [pytest.mark.soak])
        for name, case in cases.items()
    ]


@pytest.mark.parametrize("case", often(SAME, "a killed device", "partial sums"))
def test_the_bits_do_not_depend_on_processes_and_their_ends(
    tmp_path: Path, case: tuple[dict[str, Any], tuple[KillAt, ...]]
) -> None:
    values, kills = case
    for name, more, ends in (("plain", {}, ()), ("other", values, kills)):
        assert simulate_run(scenario(**more), tmp_path / name, ends) == "completed"
    model = "model.safetensors"
    assert (tmp_path / "plain" / model).read_bytes() == (tmp_path / "other" / model).read_bytes()
    assert kept(tmp_path / "plain") == kept(tmp_path / "other")


def test_devices_that_train_together_keep_what_each_would_keep_alone(tmp_path: Path) -> None:
    for name, more in (("alone", {}), ("together", {"training": {"together": 3}})):
        asked = scenario("perceptron", ["3.*", "1.bias"], group=PACK, **more)
        assert simulate_run(asked, tmp_path / name) == "completed"
    one, other = (load_file(tmp_path / n / "model.safetensors") for n in ("alone", "together"))
    assert {*one} == {*other} == {"1.weight", "5.weight", "5.bias"}
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-6)
    for alone, together in zip(kept(tmp_path / "alone"), kept(tmp_path / "together"), strict=True):
        left, right = (np.frombuffer(each, np.float32) for each in (alone, together))
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("example", "local"), [("fedper", "output"), ("fedbn", "norm")])
def test_the_examples_leave_a_part_on_each_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, local: str
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])  # which then has the folder of the example
    asked = read_scenario(EXAMPLES / f"{example}.toml", ["server.rounds=3"])
    assert simulate_run(asked, tmp_path / "run") == "completed"
    assert len({*kept(tmp_path / "run")}) == 10
    assert not any(local in name for name in load_file(tmp_path / "run/model.safetensors"))


def half(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    """A frozen layer, and a head of half precision."""
    first = nn.Linear(inputs[0], 4)
    return nn.Sequential(first, nn.BatchNorm1d(4), Narrow(4, outputs, dtype=torch.bfloat16))


class Narrow(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.bfloat16()).float()


def loop(
    task: OpenTask,
    module: nn.Module,
    received: Vector,
    examples: Examples,
    settings: Training,
    *,
    seed: int,
    client: str,
    round: int,
    base_version: int,
    state: dict[str, Any],
) -> Trained:
    """A training function of a user, with a state of its own."""
    state["rounds"] = state.get("rounds", 0) + 1
    load_vector(module, received)
    trained_alone(module, torch.from_numpy(examples.x), torch.from_numpy(examples.y))
    return Trained(vector_of(module) - received, len(examples), float(state["rounds"]), 2)


OTHERS: dict[str, dict[str, Any]] = {
    "a trainer with a state": {"training": {"trainer": f"{__name__}:loop"}},
    "half precision": {"model": "half", "local": ["2.*"]},
    "an own optimizer": {"training": {"optimizer": {"kind": "adam"}, "clip_norm": 0.5}},
}


@pytest.mark.parametrize("values", often(OTHERS, "a trainer with a state"))
def test_other_trainings_leave_local_entries_on_their_device_too(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    kills = KillAt("dev-0001", "received", 2), KillAt("server", "round_committed", 1)
    for name, ends in (("plain", ()), ("killed", kills)):
        asked: Any = {key: dict(v) if isinstance(v, dict) else v for key, v in values.items()}
        assert simulate_run(scenario(**asked), tmp_path / name, ends) == "completed"
    assert len({*kept(tmp_path / "plain")}) == COUNT
    assert kept(tmp_path / "plain") == kept(tmp_path / "killed")
    one, other = (load_file(tmp_path / n / "model.safetensors") for n in ("plain", "killed"))
    assert {n: v.tobytes() for n, v in one.items()} == {n: v.tobytes() for n, v in other.items()}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scaffold": ({"server": {"aggregator": "scaffold"}}, "entries '1.*' have none, because they"),
    "gradients": (
        {"training": {"gradient": True, "local_steps": 1}},
        "so the entries '1.*' would never change",
    ),
    "masks": (
        {
            "group": {"mask": {"kind": "random"}, "device": {"capacity": 0.5}},
            "server": {"aggregator": "fedplt"},
        },
        "task.parts gives some another role",
    ),
    "the server": (
        {"server": {"evaluate_on": "server"}},
        "the server has only the initial values",
    ),
    "measured groups": ({"server": {"evaluate_groups": True}}, "server has no entries of devices"),
}


@pytest.mark.parametrize(("values", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_makes_no_sense_with_local_entries_is_refused(
    values: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as error:
        scenario(**values)
    assert why in str(error.value)


def test_a_model_of_which_nothing_travels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no parameter of the model is trained and travels"):
        simulate_run(scenario(local=["*"]), tmp_path / "run")
