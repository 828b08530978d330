import numpy as np
import pytest
import torch
from torch import nn

from muster.common.errors import ConfigError
from muster.common.tensors import schema_of
from muster.tasks.convolution import Cnn, Resnet
from muster.tasks.models import Linear, Mlp, Model, Softmax, initial_module, seeded
from muster.tasks.parts import load_vector, schema, vector_of
from muster.tasks.recurrent import Lstm


def test_an_mlp_has_the_layers_that_the_scenario_lists() -> None:
    module = Mlp(hidden=[5, 3], activation="tanh").build((2, 4), 10)
    assert schema(module) == schema_of(
        {
            "hidden1.weight": (5, 8),
            "hidden1.bias": (5,),
            "hidden2.weight": (3, 5),
            "hidden2.bias": (3,),
            "output.weight": (10, 3),
            "output.bias": (10,),
        }
    )
    assert [type(layer) for layer in module.children()].count(nn.Tanh) == 2


def test_linear_models_start_at_zero_and_have_the_bias_that_was_asked_for() -> None:
    assert vector_of(Linear().build((4,), 1)).tolist() == [0.0] * 4
    assert vector_of(Linear(bias=True).build((4,), 1)).tolist() == [0.0] * 5
    assert vector_of(Softmax().build((2, 2), 3)).tolist() == [0.0] * 15


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Linear(), (2, 4)),
        (Linear(bias=True), (4,)),
        (Softmax(), (2, 4)),
        (Mlp(hidden=[]), (4,)),
        (Mlp(hidden=[5, 3]), (2, 4)),
        (Cnn(channels=3, hidden=7), (9, 12)),
        (Cnn(channels=3, hidden=7), (3, 8, 8)),
        (Resnet(width=6, blocks=1), (8, 8)),
        (Resnet(width=6, blocks=3), (3, 8, 8)),
        (Lstm(embedding=5, hidden=3, layers=1), (8, 11)),
        (Lstm(embedding=5, hidden=3, layers=3, bidirectional=False), (8, 11)),
    ],
    ids=repr,
)
def test_a_model_knows_its_size_before_it_is_built(model: Model, inputs: tuple[int, ...]) -> None:
    module = model.build(inputs, 4)
    built = sum(parameter.numel() for parameter in module.parameters())
    assert model.parameters(inputs, 4) == built


def test_a_model_that_is_too_large_is_refused_before_it_is_built() -> None:
    # 2 · 99,999 + 100,000 · 99,999 + 100,000
    with pytest.raises(ConfigError, match=r"task.model: 10,000,199,998 parameters, expected"):
        initial_module(Mlp(hidden=[99_999, 99_999]), (1,), 1, seed=1)


def test_initial_parameters_depend_on_the_seed_alone() -> None:
    first = vector_of(initial_module(Mlp(hidden=[3]), (4,), 2, seed=1))
    torch.rand(5)
    again = vector_of(initial_module(Mlp(hidden=[3]), (4,), 2, seed=1))
    other = vector_of(initial_module(Mlp(hidden=[3]), (4,), 2, seed=2))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_drawing_from_a_stream_leaves_the_generator_of_torch_as_it_was() -> None:
    before = torch.get_rng_state()
    with seeded(1, "a"):
        first = torch.rand(3)
    with seeded(1, "a"):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_vector_comes_back_from_the_module_it_was_loaded_into() -> None:
    module = Mlp(hidden=[3]).build((4,), 2)
    vector = np.arange(23, dtype=np.float32)
    vector.flags.writeable = False  # as it comes from the wire
    load_vector(module, vector)
    np.testing.assert_array_equal(vector_of(module), vector)
    named = dict(module.named_parameters())
    assert named["hidden1.bias"].tolist() == [12.0, 13.0, 14.0]


def test_a_module_that_is_not_float32_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bfloat16: weight are not"):
        schema(nn.Linear(2, 1, bias=False, dtype=torch.float64))
