"""The gradient of the loss of a minibatch.

`gradient_of` chooses how it is computed: by autograd, or by the chain rule written out. For a
linear model that takes a third of the time, and for a multilayer perceptron two thirds to four
fifths. Such models are so small that much of the time of a step is autograd's bookkeeping.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from muster.tasks.inputs import outputs_of
from muster.tasks.modules import linear_layers
from muster.tasks.task import OpenTask, fits_loss

AddGradient = Callable[[Any, Tensor], float]
"""Called with the x and y of a minibatch, x as `muster.tasks.inputs.selected` returns it: adds the
gradient of its mean loss to the gradients of the module's parameters, and returns the loss."""


def gradient_of(task: OpenTask, module: nn.Module) -> AddGradient:
    """The function that adds gradients of `module`, whose parameters must have gradients."""
    layers = layers_of(module)
    if layers is None or (len(layers) == 1 and not fits_loss(task, "slope")):
        return AutogradGradient(task, module)
    if len(layers) == 1:
        return WrittenGradient(task, layers[0][0])
    return LayeredGradient(task, layers)


class Activation(NamedTuple):
    """An activation after a layer.

    Attributes:
        apply_: changes the outputs of the layer to those of the activation.
        gradient: takes the gradient with respect to the outputs of the activation, and these
            outputs; returns the gradient with respect to its inputs.
    """

    apply_: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]


# The functions with which autograd goes back through these modules.
_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation(Tensor.relu_, lambda g, y: torch.ops.aten.threshold_backward(g, y, 0)),
    nn.Tanh: Activation(Tensor.tanh_, torch.ops.aten.tanh_backward),
}

Layer = tuple[nn.Linear, Activation | None]
"""A linear layer, and the activation after it; the last layer has none."""


def layers_of(module: nn.Module) -> Sequence[Layer] | None:
    """The layers of a linear model or a multilayer perceptron, in order; None if the module is
    something else, or if calling it or autograd could do more than the chain rule of these layers.
    """
    parts = linear_layers(module)
    if parts is None:
        return None
    layers: list[Layer] = []
    for place in range(0, len(parts), 2):
        layer, activation = parts[place], [type(part) for part in parts[place + 1 : place + 2]]
        if type(layer) is not nn.Linear or not all(kind in _ACTIVATIONS for kind in activation):
            return None
        layers.append((layer, _ACTIVATIONS[activation[0]] if activation else None))
    if not layers or layers[-1][1] is not None:
        return None
    hidden_without_bias = len(layers) > 1 and any(layer.bias is None for layer, _ in layers)
    return None if hidden_without_bias else layers


class AutogradGradient:
    """An `AddGradient` that uses autograd. It works for every model and loss."""

    def __init__(self, task: OpenTask, module: nn.Module) -> None:
        self._task, self._module = task, module.train()

    def __call__(self, x: Tensor, y: Tensor) -> float:
        loss = self._task.loss(outputs_of(self._module, x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()


class WrittenGradient:
    """An `AddGradient` of a linear layer, by the chain rule.

    outputs = x Wᵀ + b, so the gradients are slopeᵀ x for W and Σ slope for b.
    """

    def __init__(self, task: OpenTask, layer: nn.Linear) -> None:
        # A module looks its parameters up in dictionaries, which takes as long as the arithmetic.
        # Detached tensors share their values, and need no `no_grad` around every step.
        weight, bias = layer.weight, layer.bias
        assert weight.grad is not None
        self._task = task
        self._weight, self._weight_gradient = weight.detach(), weight.grad
        self._bias, self._bias_gradient = None, None
        if bias is not None:
            assert bias.grad is not None
            self._bias, self._bias_gradient = bias.detach(), bias.grad

    def __call__(self, x: Tensor, y: Tensor) -> float:
        x = x.flatten(1)
        outputs = linear(x, self._weight, self._bias)
        slope = self._task.slope(outputs, y)
        self._weight_gradient.addmm_(slope.t(), x)
        if self._bias_gradient is not None:
            self._bias_gradient.add_(slope.sum(0))
        return self._task.loss(outputs, y).item()


class LayeredGradient:
    """An `AddGradient` of a multilayer perceptron, by the chain rule.

    They are the operations that autograd would do, in the same order, so the gradient has the same
    bits. But they add to the gradients of the parameters without a tensor in between. Autograd
    computes only the derivative of the loss with respect to the outputs, and only for a task that
    has no `loss_and_slope` of its own.
    """

    def __init__(self, task: OpenTask, layers: Sequence[Layer]) -> None:
        self._loss_and_slope = task.loss_and_slope
        if not fits_loss(task, "loss_and_slope"):
            self._loss_and_slope = partial(OpenTask.loss_and_slope, task)
        layered = []
        for layer, activation in layers:
            weight, bias = layer.weight, layer.bias
            assert weight.grad is not None
            assert bias.grad is not None
            values = weight.detach(), bias.detach()
            layered.append((*values, weight.grad, bias.grad, activation))
        self._numbered = list(enumerate(layered))

    def __call__(self, x: Tensor, y: Tensor) -> float:
        inputs, outputs = [], x.flatten(1)
        for _, (weight, bias, _, _, activation) in self._numbered:
            inputs.append(outputs)
            outputs = linear(outputs, weight, bias)
            if activation is not None:
                outputs = activation.apply_(outputs)
        loss, slope = self._loss_and_slope(outputs, y)
        for place, (weight, _, of_weight, of_bias, activation) in reversed(self._numbered):
            if activation is not None:
                slope = activation.gradient(slope, inputs[place + 1])
            of_weight.addmm_(slope.t(), inputs[place])
            of_bias.add_(slope.sum(0))
            if place > 0:
                slope = slope.mm(weight)
        return loss
