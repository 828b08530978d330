"""Availability by a coin toss of each device in every step."""

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
    def __init__(self, batch: DeviceBatch, probability: float) -> None:
        super().__init__(batch)
        self._probability = probability
        self._draws = batch.numbers("availability")

    def on(self, context: StepContext) -> BoolArray:
        drawn: BoolArray = self._draws.at(context.step)[:, 0] < self._probability
        return drawn

    def chance(self, context: StepContext) -> FloatArray:
        return np.full(len(self.batch.clients), self._probability)


class BernoulliAvailability(Availability):
    """A device is available with the same probability in every step.

    Draws are independent of other devices and of earlier steps.
    """

    probability: Annotated[float, Field(gt=0, le=1)]
    """Probability of being available in a step."""

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        return _Bernoulli(batch, self.probability)

    def closed_form(self) -> GroupEvents:
        return GroupEvents(event=1.0, device=self.probability)
