"""What is known exactly: the optima, and where a weighted mean of updates ends."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.studies.usual_rules.fleet import (
    ALL_COME,
    COME,
    FEDAVG,
    FEDNOVA,
    GROUPS,
    OFTEN,
    ORACLE,
    RATE,
    SELDOM,
    UsualGroup,
    scenario,
)
from muster.tasks.synthetic import OpenSynthetic

DEVICES: tuple[UsualGroup, ...] = tuple(
    group for group in GROUPS.values() for _ in range(group.size)
)
"""The group of each device, in the order of the population."""
IS_SELDOM = np.array([group == GROUPS[SELDOM] for group in DEVICES])

WEIGHTS: Mapping[str, Callable[[float, int], float]] = {
    FEDAVG: lambda comes, steps: comes,
    FEDNOVA: lambda comes, steps: comes / steps,
    ORACLE: lambda comes, steps: 1.0,
}
"""Rule to the weight of a device's update in the long run, up to a common factor: from how often
the device comes, and its number of steps. As many devices come to every round, so the sum by which
a round divides is always the same."""


class UsualProblem:
    """The problem of a seed.

    Attributes:
        optimum: θ*, the minimiser of the mean loss over all devices.
        pull: from θ* to the optimum of the group that always comes.
        x, y: the examples of all devices, shape (devices, examples, dimension) and (devices,
            examples).
    """

    def __init__(self, seed: int) -> None:
        read = scenario(seed, 1, FEDAVG, ALL_COME)
        opened = task_of(read, population(read)).open(read.devices, read.seed)
        assert isinstance(opened, OpenSynthetic)
        designs = [opened.design(index) for index in range(read.devices)]
        self.x, self.y = (np.array(parts) for parts in zip(*designs, strict=True))
        self.optimum = opened.optimum()
        self.pull = opened.minimiser((~IS_SELDOM).astype(float)) - self.optimum

    @property
    def unit(self) -> float:
        """The length of `pull`, in which distances are given."""
        return float(np.linalg.norm(self.pull))

    def bias(self, theta: FloatArray) -> float:
        """How far `theta` is on the way from θ*, at 0, to the optimum of those that always come,
        at 1."""
        return float((theta - self.optimum) @ self.pull) / self.unit**2

    def loss_of_seldom(self, theta: FloatArray) -> float:
        """The mean loss of the devices that are seldom there."""
        errors = self.x[IS_SELDOM] @ theta - self.y[IS_SELDOM]
        return float((errors**2).mean()) / 2

    def limit(self, rule: str, part: str) -> FloatArray:
        """The mean of the models of a rule of `WEIGHTS` after many rounds.

        A device at θ goes P(θ_i − θ) with P = I − (I − ηA)^K, where θ_i is its optimum, A its
        curvatures and K its number of steps. The mean of θ moves no more where the weighted sum of
        these is 0.
        """
        come = {OFTEN: 1.0, SELDOM: COME[part] / GROUPS[SELDOM].size}
        of = {group: WEIGHTS[rule](come[name], group.steps) for name, group in GROUPS.items()}
        went, to = np.zeros((len(self.optimum),) * 2), np.zeros(len(self.optimum))
        for x, y, group in zip(self.x, self.y, DEVICES, strict=True):
            curvature = x.T @ x / len(x)
            left = np.linalg.matrix_power(np.eye(len(to)) - RATE * curvature, group.steps)
            way = of[group] * (np.eye(len(to)) - left)
            went, to = went + way, to + way @ np.linalg.solve(curvature, x.T @ y / len(x))
        return np.asarray(np.linalg.solve(went, to))


known = cache(UsualProblem)
"""The problem of a seed, which is the same in every part and with every rule."""
