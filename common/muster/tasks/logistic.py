"""Synthetic logistic regression, whose optimum is computed to machine precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from muster.common.bounds import Count, NotNegative
from muster.common.seeds import stream
from muster.tasks.synthetic import OpenSynthetic, Parameters, Synthetic
from muster.tasks.task import Examples, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

# Newton's method needs about ten steps, but never ends if a plane separates the examples exactly.
_STEPS = 100


class LogisticRegression(Synthetic):
    """Client i draws x ~ N(0, I), and y = 1 with probability 1 / (1 + exp(−scale · xᵀθ_i)), else 0.

    θ_i = θ₀ + heterogeneity · N(0, I), with θ₀ ~ N(0, I) / √dimension. The loss is the mean
    cross-entropy; the test set consists of all clients' training examples. If a plane separates the
    examples exactly, there is no optimum and therefore no `distance`; take more examples then.
    """

    has_accuracy: ClassVar[bool] = True

    examples_per_client: Count = 50
    """Number of examples of each client."""

    scale: NotNegative = 2.0
    """Certainty of the labels; with 0 they are coin tosses."""

    def open(self, population: int, seed: int) -> OpenLogisticRegression:
        return OpenLogisticRegression(self, population, seed)


class OpenLogisticRegression(OpenSynthetic):
    """Logistic regression for a population."""

    streams: ClassVar = "logistic"

    def __init__(self, task: LogisticRegression, population: int, seed: int) -> None:
        super().__init__(task, task.examples_per_client, population, seed)
        self._task = task
        self.theta = self.theta / np.sqrt(task.dimension)

    def drawn(self, index: int) -> Examples:
        task = self._task
        random = stream(self._seed, "logistic", "client", index)
        x = random.standard_normal((task.examples_per_client, task.dimension), dtype=np.float32)
        theta = self.theta_of(index, random)
        ones = random.random(len(x)) < _sigmoid(task.scale * self.responses(x, theta))
        return Examples(x, ones.astype(np.float32))

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(outputs.squeeze(1), y)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.sigmoid() - y.unsqueeze(1)) / y.shape[0]

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        from torch.nn.functional import binary_cross_entropy_with_logits

        z = outputs.squeeze(1)
        losses = binary_cross_entropy_with_logits(z, y, reduction="none")
        return losses, (z > 0) == (y > 0)

    def metrics_on(self, module: nn.Module, examples: Examples) -> dict[str, float]:
        """Evaluate the loss, and the `accuracy`: how often the more likely label is right."""
        import torch

        outputs = predict(module, examples.x)  # (examples, 1)
        losses, right = self.scores(outputs, torch.from_numpy(examples.y))
        loss = losses.mean().item() + self.penalty(module)
        return {"loss": loss, "accuracy": np.mean(right.numpy()).item()}

    def minimiser(self, weights: Sequence[float] | Parameters) -> Parameters:
        """Return the minimiser by Newton's method from 0, with steps halved until they descend."""
        designs = [self.design(index) for index in range(len(self.examples))]
        x = np.concatenate([x for x, _ in designs])
        y = np.concatenate([y for _, y in designs])
        each = [
            np.full(len(y), weight / len(y))
            for weight, (_, y) in zip(weights, designs, strict=True)
        ]
        p = np.concatenate(each) / sum(weights)

        def value(theta: Parameters) -> float:
            z = x @ theta
            penalty = self.ridge / 2 * (theta @ theta)
            return float(p @ (np.logaddexp(0, z) - y * z) + penalty)

        theta = np.zeros(x.shape[1])
        for _ in range(_STEPS):
            chance = _sigmoid(x @ theta)
            gradient = x.T @ (p * (chance - y)) + self.ridge * theta
            hessian = (x.T * (p * chance * (1 - chance))) @ x + self.ridge * np.eye(x.shape[1])
            step = np.linalg.lstsq(hessian, gradient)[0]
            if not np.linalg.norm(step) > 1e-14 * (1 + np.linalg.norm(theta)):
                return theta
            before, size = value(theta), 1.0
            while value(theta - size * step) > before and size > 1e-3:
                size /= 2
            theta = theta - size * step
        if np.linalg.norm(step) < 1e-10 * (1 + np.linalg.norm(theta)):
            return theta  # only the last digits still change
        return np.full_like(theta, np.nan)


def _sigmoid(z: Parameters) -> Parameters:
    return np.exp(-np.logaddexp(0, -z))
