"""The hidden units that models declare, and the coordinates that belong to them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from muster.common.errors import ConfigError
from muster.common.masks import Layout, UnitAxis, UnitLayer
from muster.common.seeds import BoolArray
from muster.common.tensors import schema_of
from muster.tasks.convolution import Cnn, Resnet
from muster.tasks.models import Linear, Mlp, Model, initial_module
from muster.tasks.parts import layout_of, load_vector, vector_of
from muster.tasks.recurrent import Lstm

MODELS: dict[str, tuple[Model, tuple[int, ...]]] = {
    "mlp": (Mlp(hidden=[6, 5]), (2, 4)),
    "cnn": (Cnn(channels=3, hidden=7), (1, 8, 12)),
    # With as many groups as channels, because a group's mean depends on all channels in it.
    "resnet": (Resnet(width=4, blocks=2, groups=16), (3, 8, 8)),
    "lstm": (Lstm(embedding=3, hidden=4, layers=2), (5, 11)),
    "lstm of one direction": (Lstm(embedding=3, hidden=4, bidirectional=False), (5, 11)),
}


def built(name: str) -> tuple[nn.Module, Layout, tuple[int, ...]]:
    model, inputs = MODELS[name]
    module = initial_module(model, inputs, 3, seed=1, tokens=model.tokens)
    return module, layout_of(module), inputs


def example(layout: Layout, inputs: tuple[int, ...], name: str) -> torch.Tensor:
    torch.manual_seed(0)
    if name.startswith("lstm"):
        return torch.randint(inputs[1], (2, inputs[0]))
    return torch.randn(2, *inputs)


def test_a_perceptron_has_the_units_of_its_hidden_layers() -> None:
    _, layout, _ = built("mlp")
    assert [(layer.name, layer.units) for layer in layout.layers] == [
        ("hidden1", 6),
        ("hidden2", 5),
    ]
    named = layout.schema.unflatten(np.arange(layout.parameters, dtype=np.float32))
    # Unit 2 of the first layer: its row and its bias. The weights to hidden2 are hidden2's.
    wanted = {*named["hidden1.weight"][2], named["hidden1.bias"][2], *named["output.bias"]}
    assert set(np.flatnonzero(layout.owned_by(np.array([2])))) == wanted
    # Unit 1 of the second layer, which is number 7 of all: also its weights to the outputs.
    wanted = {
        *named["hidden2.weight"][1],
        named["hidden2.bias"][1],
        *named["output.weight"][:, 1],
        *named["output.bias"],
    }
    assert set(np.flatnonzero(layout.owned_by(np.array([7])))) == wanted


def test_a_slice_of_a_perceptron_has_the_weights_between_the_units_that_are_kept() -> None:
    _, layout, _ = built("mlp")
    kept = layout.submodel([np.array([0, 1]), np.array([3])])
    named = layout.schema.unflatten(np.arange(layout.parameters, dtype=np.float32))
    wanted = {
        *named["hidden1.weight"][:2].ravel(),
        *named["hidden1.bias"][:2],
        *named["hidden2.weight"][3, :2],
        named["hidden2.bias"][3],
        *named["output.weight"][:, 3],
        *named["output.bias"],
    }
    assert set(np.flatnonzero(kept)) == wanted
    assert layout.submodel_size([2, 1]) == len(wanted)


@pytest.mark.parametrize("name", MODELS)
def test_units_own_every_coordinate_but_the_bias_of_the_outputs_once(name: str) -> None:
    _, layout, _ = built(name)
    units = len(layout.owned)
    times = sum(layout.owned_by(np.array([unit])).astype(int) for unit in range(units))
    expected = layout.schema.unflatten(np.ones(layout.parameters, np.float32))
    expected["output.bias"][:] = units
    assert (np.asarray(times) == layout.schema.flatten(expected)).all()
    assert layout.owned.tolist() == [
        int(layout.owned_by(np.array([unit])).sum()) - 3 for unit in range(units)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_unit_without_outgoing_weights_has_no_effect(name: str) -> None:
    """The declaration against the model itself, for a unit of every layer."""
    module, layout, inputs = built(name)
    x = example(layout, inputs, name)
    draws = np.random.default_rng(0)
    for number in range(len(layout.layers)):
        kept = [np.arange(units) for units in layout.layer_units]
        kept[number] = np.delete(kept[number], 1)
        inside = layout.submodel(kept)
        assert 0 < inside.sum() < layout.parameters
        theta = np.where(inside, vector_of(module) + 0.1, 0).astype(np.float32)
        noise = draws.standard_normal(layout.parameters).astype(np.float32)
        incoming = rows_without(layout, inside)
        assert incoming.any()
        found = [outputs_of(module, vector, x) for vector in (theta, theta + noise * incoming)]
        torch.testing.assert_close(*found, rtol=0, atol=0)
        moved = outputs_of(module, theta + noise * inside, x)
        assert not torch.allclose(found[0], moved), "the outputs depend on the rest of the model"


def rows_without(layout: Layout, inside: BoolArray) -> Any:
    """1 in the rows (indices of the first axis) of tensors that have no entry inside, which are the
    incoming weights and biases of units; else 0. The rows of an embedding are its tokens, and its
    units are the columns."""
    found = {}
    for tensor, entries in layout.schema.unflatten(inside.astype(np.float32)).items():
        units = 1 if tensor == "embedding.weight" else 0
        others = tuple(axis for axis in range(entries.ndim) if axis != units)
        empty = ~entries.any(axis=others, keepdims=True)
        found[tensor] = np.broadcast_to(empty, entries.shape).astype(np.float32)
    return layout.schema.flatten(found)


def outputs_of(module: nn.Module, vector: Any, x: torch.Tensor) -> torch.Tensor:
    load_vector(module, vector)
    with torch.no_grad():
        outputs: torch.Tensor = module(x)
    return outputs


def test_a_model_without_hidden_units_declares_none() -> None:
    assert layout_of(initial_module(Linear(), (4,), 2, seed=0)).layers == ()


def test_a_module_of_a_user_may_declare_its_units() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    axes = [
        UnitAxis(tensor="0.weight", axis=0),
        UnitAxis(tensor="0.bias", axis=0),
        UnitAxis(tensor="2.weight", axis=1),
    ]
    module.unit_layers = [UnitLayer(name="middle", units=4, axes=axes)]  # type: ignore[assignment]
    assert layout_of(module).owned.tolist() == [3 + 1 + 2] * 4
    module.unit_layers = ["middle"]  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="expected a list of"):
        layout_of(module)


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ({"tensor": "other", "axis": 0}, "names the tensor 'other', which the model does not have"),
        ({"tensor": "w", "axis": 2}, r"needs 3 indices on axis 2 of 'w', which has the shape"),
        ({"tensor": "w", "axis": 0, "start": 1}, "needs 4 indices on axis 0"),
        ({"tensor": "w", "axis": 0, "repeats": 2}, "needs 6 indices on axis 0"),
        ({"tensor": "w", "axis": -1}, "needs 3 indices on axis -1"),
    ],
)
def test_units_that_the_model_does_not_have_are_refused(axis: dict[str, Any], said: str) -> None:
    layer = UnitLayer(name="l", units=3, axes=[UnitAxis(**axis)])
    with pytest.raises(ConfigError, match=said):
        Layout(schema_of({"w": (3, 4)}), [layer])
