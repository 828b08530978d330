"""Models by name. A model class holds only settings; `build` imports torch and returns the module.

`muster.tasks.parts` says what becomes of the entries of a module's state.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.bounds import PARAMETERS, Width
from muster.common.errors import ConfigError
from muster.common.masks import UnitAxis, UnitLayer
from muster.common.seeds import integer
from muster.tasks.convolution import Cnn, Resnet
from muster.tasks.model import Model as Model
from muster.tasks.model import OwnModel
from muster.tasks.own import FunctionRegistry, Own
from muster.tasks.pickled import Pickled
from muster.tasks.recurrent import Lstm
from muster.tasks.roles import Parts, assign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from muster.tasks.inputs import Tensors


class Linear(Model):
    """One linear map; initially all parameters are 0."""

    bias: bool = False
    """Whether the map also has a constant, beside the slopes."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return _linear(inputs, outputs, bias=self.bias)

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        return (prod(inputs) + self.bias) * outputs


class Softmax(Model):
    """Softmax regression: a linear score with bias for each class; initially all parameters are 0.

    The task's loss takes the softmax. The problem is convex, so the starting point does not decide
    the result.
    """

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return _linear(inputs, outputs, bias=True)

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        return (prod(inputs) + 1) * outputs


class Mlp(Model):
    """Fully connected hidden layers, with torch's default initialisation.

    `hidden = [200, 200]` on MNIST is the 2NN of McMahan et al., AISTATS 2017.
    """

    hidden: Annotated[list[Width], Field(max_length=100)] = Field(default=[200])
    """Number of units of each hidden layer."""

    activation: Literal["relu", "tanh"] = "relu"
    """The activation after each hidden layer."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        activation = {"relu": nn.ReLU, "tanh": nn.Tanh}[self.activation]
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        width = prod(inputs)
        for number, units in enumerate(self.hidden, start=1):
            layers[f"hidden{number}"] = nn.Linear(width, units)
            layers[f"activation{number}"] = activation()
            width = units
        layers["output"] = nn.Linear(width, outputs)
        return nn.Sequential(layers)

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        widths = [prod(inputs), *self.hidden, outputs]
        return sum((before + 1) * units for before, units in pairwise(widths))

    def unit_layers(self, inputs: tuple[int, ...], outputs: int) -> Sequence[UnitLayer]:
        names = [f"hidden{number}" for number in range(1, len(self.hidden) + 1)]
        return [
            UnitLayer(
                name=name,
                units=units,
                axes=[
                    UnitAxis(tensor=f"{name}.weight", axis=0),
                    UnitAxis(tensor=f"{name}.bias", axis=0),
                    UnitAxis(tensor=f"{after}.weight", axis=1),
                ],
            )
            for (name, after), units in zip(pairwise([*names, "output"]), self.hidden, strict=True)
        ]


def _linear(inputs: tuple[int, ...], outputs: int, bias: bool) -> nn.Module:
    from torch import nn

    output = nn.Linear(prod(inputs), outputs, bias=bias)
    for parameter in output.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=output))


BUILT_IN: dict[str, type[Model]] = {
    "cnn": Cnn,
    "linear": Linear,
    "lstm": Lstm,
    "mlp": Mlp,
    "pickled": Pickled,
    "resnet": Resnet,
    "softmax": Softmax,
}
MODELS: FunctionRegistry[Model] = FunctionRegistry("model", "muster.models", BUILT_IN, OwnModel)
AnyModel = Annotated[SerializeAsAny[Model], BeforeValidator(MODELS.parse)]
"""A model as a setting."""


def initial_module(
    model: Model,
    inputs: Any,
    outputs: int,
    seed: int,
    *,
    tokens: bool = False,
    parts: Parts | None = None,
    some: Callable[[], Tensors] | None = None,
) -> nn.Module:
    """Build `model` with initial parameters drawn by `seed`.

    Args:
        inputs, outputs: see `Model.build`; for several inputs their shapes by name.
        tokens: whether examples are texts.
        parts: the roles that the scenario gives entries.
        some: makes the inputs of two examples; needed for several inputs.

    Raises:
        ConfigError: the model cannot take such examples, is too large, or `parts` does not fit it.
    """
    if isinstance(inputs, dict) and not (model.tried or isinstance(model, Own)):
        raise ConfigError(
            f"task.model: {model.kind} takes one array, but the examples have {', '.join(inputs)}; "
            f"expected a model of your own whose `forward` takes arguments of these names"
        )
    if reason := model.refusal(inputs, tokens=tokens):
        raise ConfigError(f"task.model: {reason}")
    if (size := model.parameters(inputs, outputs)) > PARAMETERS:
        raise ConfigError(
            f"task.model: {size:,} parameters, expected at most {PARAMETERS:,}; take smaller layers"
        )
    with seeded(seed, "model"):
        module = model.build(inputs, outputs)
    if not hasattr(module, "unit_layers"):
        module.unit_layers = model.unit_layers(inputs, outputs)  # type: ignore[assignment]
    assign(module, parts, some or partial(_zeros, inputs, tokens))
    return module


def _zeros(inputs: tuple[int, ...], tokens: bool) -> Tensor:
    """Two examples, the fewest with which batch normalisation works."""
    import torch

    return torch.zeros(2, *inputs, dtype=torch.int64 if tokens else torch.float32)


@contextmanager
def seeded(seed: int, *name: str | int) -> Iterator[None]:
    """Let torch draw from the stream called `name`, and restore torch's generator afterwards."""
    import torch

    before = torch.default_generator.get_state()
    seed_torch(seed, *name)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


def seed_torch(seed: int, *name: str | int) -> None:
    """Let torch draw from the stream called `name` from now on."""
    import torch

    # torch.manual_seed would also visit every accelerator, and take a stack trace for that.
    torch.default_generator.manual_seed(integer(seed, *name))
