"""Availability of devices that can always be reached; the template for a process of your own."""

import numpy as np

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    GroupEvents,
    StepContext,
)
from muster.common.seeds import BoolArray, FloatArray


class _Always(AvailabilityProcess):
    def on(self, context: StepContext) -> BoolArray:
        return np.ones(len(self.batch.clients), dtype=np.bool_)

    def chance(self, context: StepContext) -> FloatArray:
        return np.ones(len(self.batch.clients))

    def still_on(self, context: StepContext, until_s: FloatArray) -> BoolArray:
        return self.on(context)


class Always(Availability):
    """A device can be reached at every moment."""

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        return _Always(batch)

    def closed_form(self) -> GroupEvents:
        return GroupEvents(event=1.0, device=1.0)
