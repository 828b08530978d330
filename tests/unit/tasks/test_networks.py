import math
from typing import Any

import numpy as np
import pytest
import torch

from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.tasks.classification import Classification
from muster.tasks.convolution import Cnn, Resnet
from muster.tasks.datasets import Dataset
from muster.tasks.models import MODELS, Model, initial_module
from muster.tasks.parts import schema, vector_of
from muster.tasks.recurrent import Lstm


def model(kind: str, **settings: Any) -> Model:
    parsed = MODELS.parse({"kind": kind, **settings})
    assert isinstance(parsed, Model)
    return parsed


@pytest.mark.parametrize(
    ("kind", "inputs", "parameters"),
    [
        # McMahan et al., AISTATS 2017: "1,663,370 total parameters".
        ("cnn", (28, 28), 1_663_370),
        ("cnn", (1, 28, 28), 1_663_370),
        ("cnn", (3, 32, 32), 2_156_490),
        ("resnet", (28, 28), 77_562),
        ("resnet", (3, 32, 32), 77_850),
        # 65·64 + 2 · 4·64·(64 + 64 + 2) + 128·10 + 10
        ("lstm", (80, 65), 72_010),
        ("mlp", (28, 28), 159_010),
    ],
)
def test_models_have_their_parameters_and_give_a_score_for_each_label(
    kind: str, inputs: tuple[int, ...], parameters: int
) -> None:
    wanted = model(kind)
    module = initial_module(wanted, inputs, 10, seed=1, tokens=wanted.tokens)
    assert len(vector_of(module)) == parameters
    shape = inputs[:1] if wanted.tokens else inputs
    x = torch.zeros(3, *shape, dtype=torch.int64 if wanted.tokens else torch.float32)
    assert module(x).shape == (3, 10)
    again = initial_module(wanted, inputs, 10, seed=1, tokens=wanted.tokens)
    assert vector_of(again).tobytes() == vector_of(module).tobytes()


def test_a_residual_network_has_the_stages_it_was_asked_for() -> None:
    names = [tensor.name for tensor in schema(Resnet(blocks=2).build((3, 8, 8), 4)).tensors]
    assert {name.split(".")[0] for name in names if name.startswith("block")} == {
        f"block{stage}_{number}" for stage in (1, 2, 3) for number in (1, 2)
    }
    assert Resnet(width=6, groups=4).build((4, 4), 2)(torch.zeros(1, 4, 4)).shape == (1, 2)


@pytest.mark.parametrize("pooling", ["last", "max", "mean"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_reads_the_whole_text(pooling: str, bidirectional: bool) -> None:
    wanted = model("lstm", embedding=4, hidden=5, pooling=pooling, bidirectional=bidirectional)
    module = initial_module(wanted, (6, 9), 3, seed=1, tokens=True)
    text = torch.arange(6)
    for place in range(6):
        other = text.clone()
        other[place] = 8
        assert not torch.equal(module(text[None]), module(other[None]))


@pytest.mark.parametrize(
    ("kind", "inputs", "tokens", "message"),
    [
        (
            "cnn",
            (10,),
            False,
            r"task\.model: cnn takes pictures .* found examples of shape \(10,\)",
        ),
        ("cnn", (3, 32), False, "at least 4 by 4"),
        ("resnet", (2, 3, 32, 32), False, "resnet takes pictures"),
        ("cnn", (80, 65), True, "cnn takes numbers, and the examples are texts; expected lstm"),
        ("mlp", (80, 65), True, "mlp takes numbers"),
        ("lstm", (28, 28), False, r"lstm reads texts, and the examples are numbers of shape \(28"),
    ],
)
def test_a_model_refuses_what_it_cannot_take(
    kind: str, inputs: tuple[int, ...], tokens: bool, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        initial_module(model(kind), inputs, 10, seed=1, tokens=tokens)


class Stripes(Classification):
    """8×8 pictures of stripes, level or upright, in noise."""

    def dataset(self) -> Dataset:
        random = np.random.default_rng(1)
        y = np.arange(60) % 2
        x = random.integers(0, 128, (60, 8, 8), dtype=np.uint8)
        x[y == 0, ::2] += 127
        x[y == 1, :, ::2] += 127
        return Dataset(x, y, x, y, brightest=255, labels=2)


class Echo(Classification):
    """Texts of 5 tokens; the label is the first."""

    def dataset(self) -> Dataset:
        x = np.random.default_rng(1).integers(0, 4, (60, 5), dtype=np.uint8)
        y = x[:, 0].astype(np.int64)
        return Dataset(x, y, x, y, labels=4, vocabulary=4)


TASKS = [
    Stripes(model=Cnn(channels=4, hidden=16)),
    Stripes(model=Resnet(width=4)),
    Echo(model=Lstm(embedding=8, hidden=8)),
]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=["cnn", "resnet", "lstm"])
def test_training_in_a_flat_vector_is_that_of_torchs_own_parameters(task: Classification) -> None:
    opened = task.open(population=2, seed=1)
    settings = validate(Training, {"batch_size": "full", "local_steps": 3}, "test")
    received = vector_of(opened.module())

    def trained() -> Trained:
        return train(
            opened,
            opened.module(),
            received,
            opened.client(0),
            settings,
            seed=1,
            client="a",
            round=1,
            base_version=0,
        )

    first = trained()
    assert trained().delta.tobytes() == first.delta.tobytes()
    module, examples = opened.module(), opened.client(0)
    descent = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        descent.zero_grad()
        outputs = module(torch.from_numpy(examples.x))
        opened.loss(outputs, torch.from_numpy(examples.y)).backward()  # type: ignore[no-untyped-call]
        descent.step()
    np.testing.assert_allclose(first.delta, vector_of(module) - received, atol=1e-6)
    assert np.abs(first.delta).max() > 1e-3
    assert first.loss < math.log(8)
