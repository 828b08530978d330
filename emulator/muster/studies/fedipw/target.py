"""The target of the study `fedipw`: the loss over the whole population, and its geometry."""

import numpy as np

from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.logistic import OpenLogisticRegression

_POINTS = 11


class PopulationLoss:
    """F, the mean loss over all devices of a scenario with logistic regression, with its ridge
    penalty. It does not depend on enrollment.

    Attributes:
        optimum: θ*, shape (parameters,).
        least: F(θ*).
    """

    def __init__(self, read: Scenario) -> None:
        opened = task_of(read, population(read)).open(read.devices, read.seed)
        assert isinstance(opened, OpenLogisticRegression)
        designs = [opened.design(index) for index in range(read.devices)]
        self._x = np.stack([x for x, _ in designs])  # (devices, examples, parameters)
        self._y = np.stack([y for _, y in designs])
        self._ridge = opened.ridge
        self.optimum = opened.optimum()
        self.least = self.loss(self.optimum)

    def loss(self, theta: FloatArray) -> float:
        """F(θ)."""
        z = self._x @ theta
        return float(np.mean(np.logaddexp(0, z) - self._y * z) + self._ridge / 2 * (theta @ theta))

    def heterogeneity(self, theta: FloatArray) -> float:
        """G² at θ: the mean over the devices of ‖∇f_i(θ)‖² (assumption D.3)."""
        return float(np.mean(np.sum(self._gradients(theta) ** 2, axis=1)))

    def gradient(self, theta: FloatArray) -> FloatArray:
        """∇F(θ), shape (parameters,)."""
        mean: FloatArray = self._gradients(theta).mean(axis=0)
        return mean

    def _gradients(self, theta: FloatArray) -> FloatArray:
        """∇f_i(θ), shape (devices, parameters)."""
        excess = self._chance(theta) - self._y
        slopes = np.einsum("ij,ijk->ik", excess, self._x) / excess.shape[1]
        return np.asarray(slopes + self._ridge * theta, np.float64)

    def curvature(self, theta: FloatArray) -> float:
        """μ: the least eigenvalue of ∇²F between θ* and θ.

        The bound F(θ) − F(θ*) ≤ ‖∇F(θ)‖²/(2μ) needs strong convexity on this segment only. Over all
        θ, F is strongly convex with the ridge alone.
        """
        line = np.linspace(0, 1, _POINTS)[:, np.newaxis]
        points = self.optimum + line * (theta - self.optimum)
        return min(self._least_eigenvalue(point) for point in points)

    def _least_eigenvalue(self, theta: FloatArray) -> float:
        chance = self._chance(theta)
        rows = self._x.reshape(-1, len(theta))
        weights = (chance * (1 - chance)).reshape(-1, 1) / chance.size
        hessian = rows.T @ (weights * rows) + self._ridge * np.eye(len(theta))
        return float(np.linalg.eigvalsh(hessian)[0])

    def _chance(self, theta: FloatArray) -> FloatArray:
        chance: FloatArray = np.exp(-np.logaddexp(0, -(self._x @ theta)))
        return chance
