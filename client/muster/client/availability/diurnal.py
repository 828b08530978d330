"""Availability that depends on the local hour of the day.

The probability at local hour h is mean · exp(κ cos(2π (h − peak_h) / 24)) / I₀(κ), which is the
scaled density of von Mises on the clock. Its mean over a day is `mean`, and the ratio of peak to
trough is exp(2κ).
"""

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.common.seeds import BoolArray, FloatArray


class _Diurnal(AvailabilityProcess):
    def __init__(self, batch: DeviceBatch, scale: float, kappa: float, peak_h: float) -> None:
        super().__init__(batch)
        self._scale, self._kappa, self._peak_h = scale, kappa, peak_h
        self._draws = batch.numbers("availability")

    def on(self, context: StepContext) -> BoolArray:
        drawn: BoolArray = self._draws.at(context.step)[:, 0] < self.chance(context)
        return drawn

    def chance(self, context: StepContext) -> FloatArray:
        angle = 2 * np.pi / 24 * (context.hour - self._peak_h)
        chance: FloatArray = self._scale * np.exp(self._kappa * np.cos(angle))
        return chance


class Diurnal(Availability):
    """A device is available in a step with a probability that rises and falls with the local hour.

    It is drawn anew for every step.
    """

    ratio: Annotated[float, Field(ge=1, le=1e6)] = 4.0
    """Probability at the peak divided by the probability at the trough, twelve hours later
    (Bonawitz et al., MLSys 2019, section 9: four times as many devices at the best hour as at the
    worst)."""

    mean: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Mean of the probability over a day. The default is an assumption."""

    peak_h: Annotated[float, Field(ge=0, lt=24)] = 2.0
    """Local hour of the peak. Bonawitz et al. find devices idle and charging at night; which hour
    of the night is an assumption."""

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        kappa = math.log(self.ratio) / 2
        return _Diurnal(batch, self.mean / float(np.i0(kappa)), kappa, self.peak_h)

    def check(self, group: str, size: int, step_s: float) -> None:
        # exp(κ) = √ratio, the peak of a mean of 1.
        largest = float(np.i0(math.log(self.ratio) / 2)) / math.sqrt(self.ratio)
        if self.mean > largest:
            raise ValueError(
                f"mean = {self.mean:g} with ratio = {self.ratio:g} makes the probability at the "
                f"peak {self.mean / largest:.3g}, expected at most 1; with this ratio the mean can "
                f"be at most {math.floor(largest * 1e4) / 1e4:.4f}"
            )
