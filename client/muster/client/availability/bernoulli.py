"""Devices that toss a coin of their own every step."""

from typing import Annotated

import numpy as np
from pydantic import Field

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    GroupEvents,
    StepContext,
)
from muster.common.seeds import BoolArray, FloatArray


class _Bernoulli(AvailabilityProcess):
    def __init__(self, cast: DeviceBatch, probability: float) -> None:
        super().__init__(cast)
        self._probability = probability
        self._draws = cast.numbers("availability")

    def on(self, scene: StepContext) -> BoolArray:
        drawn: BoolArray = self._draws.at(scene.step)[:, 0] < self._probability
        return drawn

    def chance(self, scene: StepContext) -> FloatArray:
        return np.full(len(self.cast.clients), self._probability)


class BernoulliAvailability(Availability):
    """Every step anew, independently of the others and of what was."""

    probability: Annotated[float, Field(gt=0, le=1)]
    """Of being available in a step."""

    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        return _Bernoulli(cast, self.probability)

    def closed_form(self) -> GroupEvents:
        return GroupEvents(event=1.0, device=self.probability)
