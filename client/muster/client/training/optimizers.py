"""Local optimizers: how a device moves its parameters by the gradient of a minibatch.

An optimizer keeps nothing itself. Its state is a value, so a step is a function of the parameters,
the gradient and the state:

    state = optimizer.initial_state(theta)
    for number, gradient in enumerate(gradients, 1):
        optimizer.step(theta, gradient, state, rate=0.1, number=number)

The state begins anew in every round: devices keep no optimizer state between rounds. Most
implementations of FedAvg do so, because a device takes part rarely, and its state would belong to
an old model.

The formulas are those of torch.optim. torch.optim itself is not used, because its first use imports
torch._dynamo: 2 s and 100 MiB in every forked device. This module does not import torch, so that
scenarios can be read without it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from muster.common.bounds import NotNegative, Positive
from muster.common.plugins import Plugin, Registry

if TYPE_CHECKING:
    from torch import Tensor

    State = dict[str, Tensor]
    """The state of an optimizer within a round: tensors of the shape of the parameters, by name."""

Share = Annotated[float, Field(ge=0, lt=1)]


class Optimizer(Plugin):
    """A local optimizer."""

    def initial_state(self, theta: Tensor) -> State:
        """Return the state at the beginning of a round.

        Args:
            theta: the received parameters, float32, shape (parameters,).
        """
        return {}

    @abstractmethod
    def step(
        self, theta: Tensor, gradient: Tensor, state: State, *, rate: float, number: int
    ) -> None:
        """Take a step: change the parameters and the tensors of the state in place.

        Args:
            theta: the parameters, float32, shape (parameters,).
            gradient: the gradient of the local objective at `theta`. It may be overwritten.
            state: belongs to the caller.
            rate: the learning rate η of the round.
            number: number of the step in the round, from 1.
        """


class Sgd(Optimizer):
    """Stochastic gradient descent: θ ← θ − η v, where v ← momentum · v + g, as torch.optim.SGD.

    Without settings it is plain SGD, θ ← θ − η g.
    """

    momentum: Share = 0.0
    """The share of v that remains in a step (heavy ball). v begins with 0 in every round."""

    nesterov: bool = False
    """Whether the step is θ ← θ − η (g + momentum · v) (Nesterov's momentum)."""

    weight_decay: NotNegative = 0.0
    """λ of the L2 penalty: g ← g + λ θ, before the momentum."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov = true needs a momentum above 0, for example 0.9")
        return self

    def initial_state(self, theta: Tensor) -> State:
        return {"v": theta.new_zeros(theta.shape)} if self.momentum else {}

    def step(
        self, theta: Tensor, gradient: Tensor, state: State, *, rate: float, number: int
    ) -> None:
        if self.weight_decay:
            gradient.add_(theta, alpha=self.weight_decay)
        direction = gradient
        if self.momentum:
            v = state["v"].mul_(self.momentum).add_(gradient)
            direction = gradient.add_(v, alpha=self.momentum) if self.nesterov else v
        theta.add_(direction, alpha=-rate)


class Adam(Optimizer):
    """θ ← θ − η m̂ / (√v̂ + epsilon), as torch.optim.AdamW. m and v are moving averages of g and
    g², and m̂ and v̂ are these divided by 1 − beta1ᵗ and 1 − beta2ᵗ in step t of the round.

    Kingma and Ba, Adam, ICLR 2015 (https://arxiv.org/abs/1412.6980). A learning rate of about 0.001
    is usual. The weight decay is decoupled: Loshchilov and Hutter, Decoupled Weight Decay
    Regularization, ICLR 2019 (https://arxiv.org/abs/1711.05101).
    """

    beta1: Share = 0.9
    """The share of m that remains in a step. m begins with 0 in every round."""

    beta2: Share = 0.999
    """The share of v that remains in a step. v begins with 0 in every round."""

    epsilon: Positive = 1e-8
    """Added to √v̂. Entries of the gradient that are much smaller take smaller steps."""

    weight_decay: NotNegative = 0.0
    """λ of the decoupled weight decay (AdamW): θ ← θ − η λ θ before the step. It is not added to
    the gradient."""

    def initial_state(self, theta: Tensor) -> State:
        return {name: theta.new_zeros(theta.shape) for name in ("m", "v")}

    def step(
        self, theta: Tensor, gradient: Tensor, state: State, *, rate: float, number: int
    ) -> None:
        if self.weight_decay:
            theta.mul_(1 - rate * self.weight_decay)
        m = state["m"].lerp_(gradient, 1 - self.beta1)
        v = state["v"].mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        corrected = math.sqrt(1 - self.beta2**number)
        # The gradient is no longer needed, and its memory saves a tensor as large as the model.
        root = gradient.copy_(v).sqrt_().div_(corrected).add_(self.epsilon)
        theta.addcdiv_(m, root, value=-rate / (1 - self.beta1**number))


BUILT_IN: dict[str, type[Optimizer]] = {
    "sgd": Sgd,
    "adam": Adam,
}
OPTIMIZERS = Registry("optimizer", "muster.optimizers", BUILT_IN)
AnyOptimizer = Annotated[SerializeAsAny[Optimizer], BeforeValidator(OPTIMIZERS.parse)]
"""A local optimizer as a setting."""

PLAIN = Sgd(kind="sgd")
"""Plain SGD, the default."""
