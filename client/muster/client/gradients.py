"""The gradient of the loss of a minibatch.

`gradient_of` chooses how it is computed: by autograd, or for a linear model by the chain rule
written out, which takes a third of the time. Models of that kind are so small that most of the time
of a step is autograd's bookkeeping.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import linear

from muster.tasks.task import OpenTask

AddGradient = Callable[[Tensor, Tensor], float]
"""Called with the x and y of a minibatch: adds the gradient of its mean loss to the gradients of
the module's parameters, and returns the loss."""


def gradient_of(task: OpenTask, module: nn.Module) -> AddGradient:
    """The function that adds gradients of `module`, whose parameters must have gradients."""
    layer = _only_layer(module)
    if layer is not None and _slope_fits(type(task)):
        return WrittenGradient(task, layer)
    return AutogradGradient(task, module)


def _only_layer(module: nn.Module) -> nn.Linear | None:
    """The linear layer of a module that flattens its inputs and has no other layer."""
    if type(module) is nn.Sequential and [type(part) for part in module] == [nn.Flatten, nn.Linear]:
        layer = module[-1]
        assert isinstance(layer, nn.Linear)
        return layer
    return None


def _slope_fits(task: type[OpenTask]) -> bool:
    """Whether `slope` belongs to `loss`: a derived task may have a loss of its own."""
    definer = {
        name: next(base for base in task.__mro__ if name in vars(base))
        for name in ("loss", "slope")
    }
    return definer["loss"] is definer["slope"] is not OpenTask


class AutogradGradient:
    """An `AddGradient` that uses autograd. It works for every model and loss."""

    def __init__(self, task: OpenTask, module: nn.Module) -> None:
        self._task, self._module = task, module

    def __call__(self, x: Tensor, y: Tensor) -> float:
        loss = self._task.loss(self._module(x), y)
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
