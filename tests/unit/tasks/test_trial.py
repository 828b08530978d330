"""The trial of data, models and training of the user's own before a run starts."""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from muster.client.processes.config import GroupTrial, Trial
from muster.client.processes.nursery import prepare
from muster.client.processes.trial import require_trained, try_task
from muster.client.training.local import minibatches
from muster.client.training.local import train as muster_train
from muster.client.training.settings import Training
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.opening import opened
from muster.tasks.task import Examples, OpenTask, Task, predict
from muster.tasks.tasks import TASKS

X = np.linspace(-1, 1, 36, dtype=np.float32).reshape(9, 4)
Y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])


def nan(x: Any) -> Any:
    x = x.copy()
    x[3, 1] = np.nan
    return x


PAIRS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "float64": lambda: (X.astype(np.float64), Y),
    "float64 y": lambda: (X, Y.astype(np.float64)),
    "float32 y": lambda: (X, Y.astype(np.float32)),
    "int64 x": lambda: ((X * 9).astype(np.int64), Y),
    "int32 x": lambda: ((X * 9).astype(np.int32), Y),
    "int32 y": lambda: (X, Y.astype(np.int32)),
    "uint8 y": lambda: (X, Y.astype(np.uint8)),
    "uint8 x": lambda: ((X * 9).astype(np.uint8), Y),
    "float16 x": lambda: (X.astype(np.float16), Y),
    "bool x": lambda: (X > 0, Y),
    "bool y": lambda: (X, Y > 0),
    "tensors": lambda: (torch.from_numpy(X), torch.from_numpy(Y)),
    "bfloat16": lambda: (torch.from_numpy(X).bfloat16(), torch.from_numpy(Y)),
    "float64 tensor": lambda: (torch.from_numpy(X).double(), Y),
    "gradient": lambda: (torch.from_numpy(X).requires_grad_(), Y),
    "read-only": lambda: (np.broadcast_to(X[:1], X.shape), Y),
    "reversed": lambda: (X[::-1], Y[::-1]),
    "big-endian": lambda: (X.astype(">f4"), Y.astype(">i8")),
    "lists": lambda: (X.tolist(), Y.tolist()),
    "text": lambda: (X, Y.astype(str)),
    "objects": lambda: (X.astype(object), Y),
    "dict": lambda: ({"x": X}, Y),
    "short y": lambda: (X, Y[:-1]),
    "a number": lambda: (X, np.int64(3)),
    "negative label": lambda: (X, Y - 1),
    "label 3": lambda: (X, Y + 1),
    "bytes as tokens": lambda: (np.abs(X) / 2, Y),
    "column of labels": lambda: (X, Y[:, np.newaxis]),
    "five features": lambda: (np.full((9, 5), 0.5, np.float32), Y),
    "tokens": lambda: (np.ones((9, 5), np.float32), Y),
    "pictures": lambda: (np.ones((9, 2, 2, 1), np.float32), Y),
    "nan": lambda: (nan(X), Y),
    "nothing": lambda: (X[:0], Y[:0]),
}

METRICS: dict[str, Any] = {
    "NumPy scalar": np.float32(0.5),
    "0-d tensor": torch.tensor(0.5),
    "0-d array": np.array(0.5),
    "bool": True,
    "list": [1, 2],
    "vector": torch.ones(2),
    "nothing measured": None,
    "no loss": "left out",
}


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Squeezed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze().softmax(1)


class Ids(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.long()


class Positions(nn.Module):
    """Fractions are features here; the embedding gets something else, by the argument's name."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.last = nn.Embedding(4, 1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.last(x + self.places(input=torch.arange(4)).flatten())
        return added


class Slip(OpenTask):
    """Two devices with nine examples each; `slip` is what is wrong."""

    def __init__(self, slip: str) -> None:
        self.slip = slip
        self.examples: Any = [9, 9]
        if slip in ("site without", "nothing"):
            self.examples = {"site without": [0, 9], "nothing": [0, 0]}[slip]
        if slip == "short list":
            self.examples = [9]

    def client(self, index: int) -> Examples:
        if self.slip == "site without" and index == 0:
            return Examples(X[:0], Y[:0])
        if self.slip == "other shape" and index == 1:
            return Examples(X[:, :3], Y)
        return Examples(*(PAIRS[self.slip]() if self.slip in PAIRS else (X, Y)))

    def test(self) -> Examples:
        return Examples(X[:0], Y[:0]) if self.slip == "no test" else self.client(1)

    def module(self) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(4, 6)]
        if self.slip.startswith("norm"):
            layers.append(nn.BatchNorm1d(6))
        module = nn.Sequential(*layers, nn.Linear(6, 3))
        if self.slip == "tuple":
            module = nn.Sequential(*module, Pair())
        if self.slip == "bytes as tokens":
            module = nn.Sequential(Ids(), nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 3))
        if self.slip == "an embedding of positions":
            module = nn.Sequential(Positions())
        if self.slip == "one output":
            module = nn.Sequential(*module, nn.Linear(3, 1))
        if self.slip == "squeezed":
            module = nn.Sequential(*module, Squeezed())
        return module

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        mean = "none" if self.slip == "loss of each" else "mean"
        return torch.nn.functional.cross_entropy(outputs, y, reduction=mean)

    def metrics_on(self, module: nn.Module, examples: Examples) -> dict[str, float]:
        if self.slip == "rare label" and len(set(examples.y.tolist())) < 3:
            raise ValueError("only one class present")
        found = {
            "loss": self.loss(predict(module, examples.x), torch.from_numpy(examples.y)).item()
        }
        if self.slip in METRICS:
            found["more"] = METRICS[self.slip]
        return {"accuracy": 1.0} if self.slip == "no loss" else found


def slipping(population: int, seed: int, slip: str) -> OpenTask:
    return Slip(slip)


def train_badly(*given: Any, how: str = "", **named: Any) -> Any:
    if how == "raise":
        raise RuntimeError("no such\nlayer")
    if how == "few" and len(given[3]) != 9:
        raise ValueError("it needs all examples")
    trained = muster_train(*given, **named)
    return trained if how in ("", "few") else trained.delta


def train_with_state(*given: Any, state: dict[str, Any], **named: Any) -> Any:
    state["seen"] = {1}
    return muster_train(*given, **named)


def check(slip: str, **training: Any) -> None:
    """Do what a nursery does before it is ready."""
    task = TASKS.parse({"name": f"{__name__}:slipping", "slip": slip})
    assert isinstance(task, Task)
    settings = validate(Training, training, "test")
    groups = [GroupTrial(name=name, devices={name: at}) for at, name in enumerate(("a", "b"))]
    found = opened(task, 2, 0)
    prepare(found, None, {})
    try_task(found, Trial(training=settings, groups=groups), 0)


@pytest.mark.parametrize(
    "slip",
    [
        *("none", "int32 y", "uint8 y", "uint8 x", "float16 x", "tensors", "bfloat16", "gradient"),
        *("read-only", "reversed", "big-endian", "site without", "rare label"),
        "an embedding of positions",
        *("NumPy scalar", "0-d tensor", "0-d array", "bool"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_can_be_used_without_loss_is_used(slip: str) -> None:
    check(slip)


@pytest.mark.parametrize(
    ("slip", "why"),
    [
        ("float64", r"inputs of a, x of float64 and shape \(9, 4\): .*; give x.astype\(np.float32"),
        ("float64 tensor", r"x of float64 .*; give x.astype\(np.float32\)"),
        ("int64 x", r"x of int64 .*; give numbers as float32, x.astype\(np.float32\); int64 is"),
        ("int32 x", r"x of int64 .*; give numbers as float32"),
        ("bool x", r"x of bool .*; give x.astype\(np.float32\)"),
        ("float64 y", r"y of float64 and shape \(9,\) \(expected int64 for labels, y.astype"),
        ("float32 y", r"the loss fails .* and y of float32 and shape \(9,\)"),
        ("bool y", r"y of bool and shape \(9,\) \(expected int64"),
        ("lists", r"client\(0\): x: expected a NumPy array or a dense tensor, found list"),
        ("dict", r"x of x: float32 and shape \(9, 4\): .*; give a model whose `forward` takes x"),
        ("text", r"client\(0\): y: expected numbers, found .*first is '0'\); give every label a n"),
        ("objects", r"client\(0\): x: expected numbers, found an array of object"),
        ("a number", r"client\(0\): y: expected an array with a row for every example"),
        ("short y", r"client\(0\): expected as many rows of x as of y, found 9 and 8"),
        ("short list", r"examples.*expected 2 numbers, one for every device, found 1"),
        ("negative label", r"labels from -1 to 1, and the model has 3 outputs.* from 0 to 2"),
        ("label 3", r"labels from 1 to 3, and the model has 3 outputs, which are for labels from"),
        ("one output", r"the model has 1 outputs; for numbers to predict, take .*'own-regression'"),
        ("bytes as tokens", r"an embedding gets x cut to whole numbers.*give tokens as int64"),
        (
            "column of labels",
            r"the loss fails .*outputs of float32 and shape \(9, 3\) and y of int",
        ),
        (
            "five features",
            r"x of float32 and shape \(9, 5\).*; give a model that takes inputs of s",
        ),
        ("tokens", r"x of float32 .*; if these whole numbers are tokens, give the input a name"),
        ("other shape", r"inputs of b, x of float32 and shape \(9, 3\)"),
        ("nan", r"x of a has 1 values that are not finite .* the first in row 3"),
        ("nothing", r"no device has examples to train on"),
        ("no test", r"expected at least one example on which models are evaluated, found none"),
        ("tuple", r"outputs of tuple and y of int64 .*expected a model that returns a tensor"),
        ("loss of each", r"a loss that is a tensor of one number.*found float32 and shape \(9,\)"),
        ("list", r"metrics: expected a number as 'more', found \[1, 2\]"),
        ("vector", r"metrics: expected a number as 'more', found tensor"),
        ("nothing measured", r"metrics: expected a number as 'more', found None"),
        ("no loss", r"metrics: expected a loss among them, found accuracy"),
    ],
)
def test_a_slip_costs_one_sentence_before_the_start(slip: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as found:
        check(slip)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("slip", "training", "why"),
    [
        ("norm", {"batch_size": 1}, "batch_size is 1; take a batch_size of 3 or more"),
        ("norm", {"batch_size": 2}, "a has 9 examples, and training.batch_size is 2; take a batch"),
        ("norm", {"batch_size": 4}, None),
        ("norm", {"batch_size": "full"}, None),
        ("squeezed", {"batch_size": 4}, "loss of one example.*; take another training.batch_size"),
        ("squeezed", {"batch_size": 3}, None),
        ("pictures", {"batch_size": 4}, None),
        ("none", {"local_steps": 0}, None),
        ("none", {"trainer": {"kind": f"{__name__}:train_badly"}}, None),
        (
            "none",
            {"trainer": {"kind": f"{__name__}:train_badly", "how": "few"}, "batch_size": 2},
            None,
        ),
        (
            "none",
            {"trainer": {"kind": f"{__name__}:train_badly", "how": "raise"}},
            "train_badly: a step of training of a fails: RuntimeError: no such layer",
        ),
        ("none", {"trainer": f"{__name__}:train_with_state"}, "train_with_state.*seen"),
        (
            "none",
            {"trainer": {"kind": f"{__name__}:train_badly", "how": "delta"}},
            "train_badly returned .* expected a Trained",
        ),
    ],
)
def test_a_step_is_tried_with_the_settings_of_the_scenario(
    slip: str, training: dict[str, Any], why: str | None
) -> None:
    if why is None:
        return check(slip, **training)
    with pytest.raises(ConfigError, match=why):
        check(slip, **training)


def test_no_minibatch_has_one_example_alone_if_batches_are_normalised() -> None:
    draws = lambda: np.random.default_rng(1)  # noqa: E731
    norm, settings = nn.BatchNorm1d(2), Training(local_epochs=2, batch_size=4)
    plain = [*minibatches(9, settings, draws, nn.Linear(1, 1))]
    joined = [*minibatches(9, settings, draws, norm)]
    assert [len(rows) for rows in plain if rows is not None] == [4, 4, 1] * 2
    assert [len(rows) for rows in joined if rows is not None] == [4, 3, 2] * 2
    assert torch.equal(*(torch.cat([r for r in rows if r is not None]) for rows in (plain, joined)))
    even = [[*minibatches(8, settings, draws, each)] for each in (norm, None)]
    assert all(torch.equal(*pair) for pair in zip(*even, strict=True))
    steps = Training(local_steps=4, batch_size=4)
    assert [len(r) for r in minibatches(9, steps, draws, norm) if r is not None] == [4, 3, 2, 4]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("", None),
        ("refuse", "^a sentence$"),
        ("raise", "ended its process with status 1; see logs/nursery.log"),
        ("exit", "ended its process with status 7"),
        ("kill", "ended its process with signal 9; .* take a smaller model"),
    ],
)
def test_a_trial_leaves_nothing_behind(
    how: str, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []

    def tried(*_: Any) -> None:  # without torch, whose threads in this process no child has
        called.append(how)
        match how:
            case "refuse":
                raise ConfigError("a sentence")
            case "raise":
                raise KeyError(how)
            case "exit":
                os._exit(7)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("muster.client.processes.trial.try_task", tried)
    trial = Trial(training=Training(), groups=[])
    if why is None:
        require_trained(Slip("none"), trial, 0)
    else:
        with pytest.raises(ConfigError, match=why):
            require_trained(Slip("none"), trial, 0)
    assert not called


def test_no_device_has_to_import_what_the_trial_has_made_torch_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lazily = "torch.utils.collect_env"
    monkeypatch.delitem(sys.modules, lazily, raising=False)
    monkeypatch.setattr("muster.client.processes.trial.try_task", lambda *_: import_module(lazily))
    require_trained(Slip("none"), Trial(training=Training(), groups=[]), 0)
    assert lazily in sys.modules


def test_only_code_of_the_users_own_is_tried(tmp_path: Path) -> None:
    def trial(**more: Any) -> Trial | None:
        plain = {"name": "x", "task": "digits", "server": {"rounds": 1}}
        groups = [{"name": "a", "count": 2, "training": {"local_steps": 3}}]
        scenario = validate(Scenario, {**plain, "groups": groups, **more}, "test")
        return ProcessConfigs(scenario, tmp_path).nursery().trial

    assert trial() is None
    for more in (
        {"task": {"name": f"{__name__}:slipping", "slip": "none"}},
        {"task": {"name": "digits", "model": f"{__name__}:make"}},
        {"training": {"trainer": f"{__name__}:train_badly"}},
    ):
        found = trial(**more)
        assert found is not None
        [group] = found.groups
        assert group.devices == {"a-0000": 0, "a-0001": 1}
        assert group.training.local_steps == 3


def make(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(8, outputs)
