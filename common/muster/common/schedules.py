"""Learning-rate schedules: rates that change from round to round.

A schedule gives the rate η_t of all local steps of a round, where t = round − 1. Rounds count from
1, so the first round has t = 0 and every schedule starts at its `initial` rate.

    learning_rate = 0.1
    learning_rate = { kind = "inverse", initial = 0.1, shift = 50 }

The server knows schedules too, because aggregation rules that undo a step size need the rate of a
round.
"""

import math
from abc import abstractmethod
from typing import Annotated

from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.bounds import Positive
from muster.common.plugins import Plugin, Registry

SMALLEST_RATE, LARGEST_RATE = 1e-12, 1e6

LearningRate = Annotated[float, Field(ge=SMALLEST_RATE, le=LARGEST_RATE)]
"""A learning rate. Both bounds are far beyond the rates that train anything."""


class Schedule(Plugin):
    """A schedule: the learning rate as a function of the round."""

    initial: LearningRate
    """The rate of round 1."""

    @abstractmethod
    def at(self, round: int) -> float:
        """Return the rate of `round`, which counts from 1."""


class ConstantSchedule(Schedule):
    """η_t = initial, in every round. A bare number means the same."""

    def at(self, round: int) -> float:
        return self.initial


class Inverse(Schedule):
    """η_t = initial · shift / (t + shift).

    The decay of strongly convex analyses, η_t = 1/(z (t + t₀)), is initial = 1/(z t₀) and
    shift = t₀. A small shift with a large initial rate can first drive the model far away.
    """

    shift: Positive = 1.0
    """Number of rounds after which the rate is half of `initial`."""

    def at(self, round: int) -> float:
        return self.initial * self.shift / (round - 1 + self.shift)


class InverseSqrt(Schedule):
    """η_t = initial · √(shift / (t + shift)), the decay of convex analyses."""

    shift: Positive = 1.0
    """A third of the number of rounds after which the rate is half of `initial`."""

    def at(self, round: int) -> float:
        return self.initial * math.sqrt(self.shift / (round - 1 + self.shift))


class Exponential(Schedule):
    """η_t = initial · decay^t."""

    decay: Annotated[float, Field(ge=1e-12, le=1)] = 0.99
    """Factor of the rate from one round to the next."""

    def at(self, round: int) -> float:
        return self.initial * float(self.decay ** (round - 1))


BUILT_IN: dict[str, type[Schedule]] = {
    "constant": ConstantSchedule,
    "exponential": Exponential,
    "inverse": Inverse,
    "inverse-sqrt": InverseSqrt,
}
SCHEDULES = Registry("learning-rate schedule", "muster.schedules", BUILT_IN)


def parse_rate(value: object) -> object:
    """Read a bare number, or a table that names a schedule."""
    if isinstance(value, int | float):
        if isinstance(value, bool) or not SMALLEST_RATE <= value <= LARGEST_RATE:
            raise ValueError(
                f"expected a number from {SMALLEST_RATE:g} to {LARGEST_RATE:g} or a schedule's "
                f"table, found {value!r}"
            )
        return float(value)
    return SCHEDULES.parse(value)


Rate = Annotated[LearningRate | SerializeAsAny[Schedule], BeforeValidator(parse_rate)]
"""A learning rate as a setting: the same in every round, or a schedule."""


def rate_at(rate: float | Schedule, round: int) -> float:
    """Return the learning rate of `round`, which counts from 1."""
    return rate.at(round) if isinstance(rate, Schedule) else rate
