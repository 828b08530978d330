"""What is known exactly: where static masks lead if devices disagree."""

import numpy as np

from muster.common.masks import GroupMasks, Layout
from muster.common.seeds import BoolArray, FloatArray
from muster.common.tensors import schema_of
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
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
    opened = task_of(scenario, population(scenario)).open(scenario.devices, scenario.seed)
    assert isinstance(opened, OpenSynthetic)
    designs = [opened.design(index) for index in range(scenario.devices)]
    parameters = designs[0][0].shape[1]
    left, right = np.zeros((parameters, parameters)), np.zeros(parameters)
    for mask, (x, y) in zip(masks_of(scenario, parameters), designs, strict=True):
        left[mask] += (x.T @ x / len(x))[mask]
        right[mask] += (x.T @ y / len(x))[mask]
    equal = np.full(scenario.devices, 1 / scenario.devices)
    return np.asarray(np.linalg.solve(left, right)), np.asarray(opened.minimiser(equal))
