"""Rules that take the step of an optimizer on the server, against torch's optimizers and against
the formulas of the paper written entry by entry."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from muster.common.errors import Diverged
from muster.common.exact_sum import moved
from muster.server.aggregators import AGGREGATORS, Contribution
from muster.server.aggregators.fedbuff import FedBuff
from muster.server.aggregators.optimizing import Optimizing

MEANS = np.random.default_rng(3).normal(size=(6, 4))
"""The mean updates of six rounds."""

START = np.array([1.0, -2.0, 0.5, 0.0], np.float32)


def rule(kind: str, **settings: Any) -> Optimizing:
    found = AGGREGATORS.parse({"kind": kind, **settings})
    assert isinstance(found, Optimizing)
    return found


def course(found: Optimizing) -> np.ndarray:
    """The sum of the steps after all rounds, float64."""
    state, total = found.initial_state(START), np.zeros(len(START))
    for mean in MEANS:
        step, state = found.step(mean, state)
        total = total + step
    return total


def torch_course(optimizer: type[torch.optim.Optimizer], **settings: Any) -> np.ndarray:
    """The same with an optimizer of torch, for which −Δ is the gradient."""
    theta = torch.zeros(len(START), dtype=torch.float64, requires_grad=True)
    steps = optimizer([theta], **settings)
    for mean in MEANS:
        theta.grad = torch.from_numpy(-mean)
        steps.step()
    return theta.detach().numpy()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fedavgm_is_momentum(momentum: float) -> None:
    expected = torch_course(torch.optim.SGD, lr=0.5, momentum=momentum)
    found = course(rule("fedavgm", rate=0.5, momentum=momentum))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_fedadagrad_is_adagrad_that_begins_with_tau() -> None:
    expected = torch_course(torch.optim.Adagrad, lr=0.1, eps=1e-3, initial_accumulator_value=1e-6)
    np.testing.assert_allclose(course(rule("fedadagrad", rate=0.1)), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["fedadam", "fedyogi"])
def test_adam_and_yogi_follow_algorithm_2(kind: str) -> None:
    beta1, beta2, tau, rate = 0.9, 0.99, 0.01, 0.2
    expected = []
    for entry in range(len(START)):
        m, v, theta = 0.0, tau**2, 0.0
        for mean in MEANS:
            delta = float(mean[entry])
            m = beta1 * m + (1 - beta1) * delta
            if kind == "fedadam":
                v = beta2 * v + (1 - beta2) * delta**2
            else:
                v = v - (1 - beta2) * delta**2 * math.copysign(1.0, v - delta**2)
            theta += rate * m / (math.sqrt(v) + tau)
        expected.append(theta)
    found = course(rule(kind, beta1=beta1, beta2=beta2, tau=tau, rate=rate))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_model_that_float32_cannot_hold_has_diverged() -> None:
    assert moved(START, np.ones(4)).dtype == np.float32
    with pytest.raises(Diverged, match="float32 cannot hold"):
        moved(START, np.full(4, 1e39))


def test_fedbuff_divides_by_the_number_of_updates_not_by_the_weights() -> None:
    found = FedBuff(kind="fedbuff", rate=2.0)
    contributions = [Contribution(f"c{n}", "g", 7, n, discount=0.5**n) for n in range(3)]
    weights = [found.weight(c, {}) * c.discount for c in contributions]
    assert weights == [1.0, 0.5, 0.25]
    assert found.normaliser(sum(weights), contributions) == 1.5
