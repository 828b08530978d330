"""Devices that can always be reached; the template of a process."""

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
    def on(self, scene: StepContext) -> BoolArray:
        return np.ones(len(self.cast.clients), dtype=np.bool_)

    def chance(self, scene: StepContext) -> FloatArray:
        return np.ones(len(self.cast.clients))

    def still_on(self, scene: StepContext, until_s: FloatArray) -> BoolArray:
        return self.on(scene)


class Always(Availability):
    """It can be reached at every moment."""

    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        return _Always(cast)

    def closed_form(self) -> GroupEvents:
        return GroupEvents(event=1.0, device=1.0)
