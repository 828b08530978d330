"""What is known exactly of static masks: where they lead, the path of full gradient steps with its
alignments (assumption 6), and when parts that move at the same time go too far."""

from functools import cache
from typing import NamedTuple

import numpy as np

from muster.common.masks import GroupMasks, Layout
from muster.common.seeds import BoolArray, FloatArray, stream
from muster.common.tensors import schema_of
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.studies.fedplt.static_fleet import BOUNDARY_RATE, evenly, share_of
from muster.tasks.synthetic import OpenSynthetic


def masks_of(scenario: Scenario, parameters: int) -> list[BoolArray]:
    """The static mask of every device; each of shape (parameters,)."""
    (group,) = scenario.groups
    assert group.mask is not None
    layout = Layout(schema_of({"theta": [parameters]}), [])
    masks = GroupMasks(group.mask, layout, group.device.capacity, scenario.seed)
    return [
        masks.of(resident.client, resident.index, 1).whole() for resident in population(scenario)
    ]


def limits(scenario: Scenario) -> tuple[FloatArray, FloatArray]:
    """Where static masks lead on quadratics, and the minimiser of the mean loss, which is θ*.

    With static masks, entry i of the model rests where Σ_k c_k m_ki ∇_i F_k = 0. Every entry is the
    zero of an equation of other devices, so the solution is the minimiser of no mean of losses.

    Returns:
        Two vectors of shape (parameters,).
    """
    designs, best = _problem(scenario)
    parameters = designs[0][0].shape[1]
    left, right = np.zeros((parameters, parameters)), np.zeros(parameters)
    for mask, (x, y) in zip(masks_of(scenario, parameters), designs, strict=True):
        left[mask] += (x.T @ x / len(x))[mask]
        right[mask] += (x.T @ y / len(x))[mask]
    return np.asarray(np.linalg.solve(left, right)), best


_POWERS = 500


class Path(NamedTuple):
    """The path of full gradient steps with static masks on quadratics.

    Attributes:
        distances: to the minimiser of the mean loss, before and after every round, (rounds + 1,).
        alignments: ρ_k of assumption 6 at these models, shape (rounds + 1, devices).
        end: the last model.
    """

    distances: FloatArray
    alignments: FloatArray
    end: FloatArray


def path(scenario: Scenario) -> Path:
    """Follow equation 5 and the update rule of the paper from 0: devices with as many examples
    each take τ full gradient steps on ½·mean (x·θ − y)² inside their masks."""
    designs, best = _problem(scenario)
    masks = np.array(masks_of(scenario, len(best)))
    hessians = np.array([x.T @ x / len(x) for x, _ in designs])
    slopes = np.array([x.T @ y / len(x) for x, y in designs])
    rate, steps = scenario.training.learning_rate, scenario.training.local_steps
    assert isinstance(rate, float)
    assert steps is not None
    model, models = np.zeros(len(best)), []
    for _ in range(scenario.server.rounds + 1):
        models.append(model)
        local = np.tile(model, (len(designs), 1))
        for _ in range(steps):
            gradients = np.einsum("kij,kj->ki", hessians, local) - slopes
            local -= rate * masks * gradients
        moved = (masks * (local - model)).sum(axis=0)
        model = model + moved / np.maximum(masks.sum(axis=0), 1)
    away = np.array(models) - best
    gradients = np.einsum("kij,tj->tki", hessians, np.array(models)) - slopes
    whole = np.einsum("tki,ti->tk", gradients, away)
    masked = np.einsum("tki,ki,ti->tk", gradients, masks.astype(float), away)
    return Path(np.linalg.norm(away, axis=1), masked / whole, models[-1])


@cache
def boundary_radius(seed: int, share: float, steps: int, damping: float) -> float:
    """`overshoot` of a run of `boundary`, with the curvature of the untrained model."""
    scenario = evenly(steps).scenario(seed, 1, share_of(share, damping))
    opened = task_of(scenario, population(scenario)).open(scenario.devices, scenario.seed)
    data = [opened.client(index) for index in range(scenario.devices)]
    x = np.concatenate([np.reshape(one.x, (len(one.y), -1)) for one in data]).astype(np.float64)
    ones = np.c_[x, np.ones(len(x))]
    moments, classes = ones.T @ ones / len(ones), 10
    # All classes have the probability 1/10, so the curvature is (I/10 − 11ᵀ/100) ⊗ E xxᵀ.
    between = np.eye(classes) / classes - 1 / classes**2
    inputs = np.arange(x.shape[1])
    unit = np.r_[np.repeat(np.arange(classes), len(inputs)), np.arange(classes)]
    entry = np.r_[np.tile(inputs, classes), np.full(classes, len(inputs))]
    hessian = between[np.ix_(unit, unit)] * moments[np.ix_(entry, entry)]
    parts = np.array(masks_of(scenario, len(hessian)))
    return overshoot(hessian, parts, BOUNDARY_RATE, steps, damping)


def overshoot(
    hessian: FloatArray, parts: BoolArray, rate: float, steps: int, damping: float = 1.0
) -> float:
    """The spectral radius of a round in which devices with the same quadratic loss train parts.

    A device whose part is B takes τ steps inside it, which move it by −(I − (I − ηH_BB)^τ)·H_BB⁻¹·
    (Hx)_B. Each entry then moves by the mean over the devices that train it, times `damping`. Above
    1, training diverges. With many steps and parts that do not overlap this is the block-Jacobi
    iteration.

    Args:
        hessian: H, shape (parameters, parameters), positive semidefinite.
        parts: the masks, shape (devices, parameters).
    """
    moves, trained = np.zeros_like(hessian), np.maximum(parts.sum(axis=0), 1)
    for part, times in zip(*np.unique(parts, axis=0, return_counts=True), strict=True):
        own = np.flatnonzero(part)
        values, vectors = np.linalg.eigh(hessian[np.ix_(own, own)])
        values = np.maximum(values, 0.0)
        # (1 − (1 − ηλ)^τ)/λ = η·Σ (1 − ηλ)^s, which is also right for λ = 0.
        sums = rate * sum((1 - rate * values) ** step for step in range(steps))
        moves[own] += times * (vectors * sums) @ vectors.T @ hessian[own]
    whole = np.eye(len(hessian)) - damping * moves / trained[:, None]
    # Many powers of a matrix stretch almost any vector by its spectral radius. Its eigenvalues take
    # a hundred times as long.
    vector = stream(1, "overshoot").standard_normal(len(hessian))
    for _ in range(_POWERS):
        vector = vector / np.linalg.norm(vector)
        vector = whole @ vector
    return float(np.linalg.norm(vector))


def _problem(
    scenario: Scenario,
) -> tuple[list[tuple[FloatArray, FloatArray]], FloatArray]:
    """The design of every device, x and y, and the minimiser of the mean loss."""
    opened = task_of(scenario, population(scenario)).open(scenario.devices, scenario.seed)
    assert isinstance(opened, OpenSynthetic)
    designs = [opened.design(index) for index in range(scenario.devices)]
    equal = np.full(scenario.devices, 1 / scenario.devices)
    return designs, np.asarray(opened.minimiser(equal))
