"""Steps of device life, counted from scenario second 0."""

import math


def step_at(scenario_s: float, step_s: float) -> int:
    """The step that has begun at a scenario second.

    Args:
        step_s: scenario seconds of a step.
    """
    # The small allowance, because 3 * 0.1 / 0.1 could be less than 3.
    return math.floor(scenario_s / step_s + 1e-9)
