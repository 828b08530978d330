"""Steps of device life, counted from scenario second 0."""

import math

_ALLOWANCE = 1e-9
"""In steps; without it, 3 * 0.1 / 0.1 could be less than 3, or more."""


def step_at(scenario_s: float, step_s: float) -> int:
    """The step that has begun at a scenario second.

    Args:
        step_s: scenario seconds of a step.
    """
    return math.floor(scenario_s / step_s + _ALLOWANCE)


def first_step(scenario_s: float, step_s: float) -> int:
    """The first step that does not begin before a scenario second."""
    return math.ceil(scenario_s / step_s - _ALLOWANCE)
