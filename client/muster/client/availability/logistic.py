"""Availability with a probability that depends on a device's covariates."""

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.client.availability.logit import Logit
from muster.common.seeds import BoolArray, FloatArray


class _Logistic(AvailabilityProcess):
    def __init__(self, batch: DeviceBatch, logit: Logit) -> None:
        super().__init__(batch)
        self._logit = logit
        self._draws = batch.numbers("availability")

    def on(self, context: StepContext) -> BoolArray:
        drawn: BoolArray = self._draws.at(context.step)[:, 0] < self.chance(context)
        return drawn

    def chance(self, context: StepContext) -> FloatArray:
        return self._logit.chance(self.batch.z, context.x, len(self.batch.clients))


class LogisticAvailability(Logit, Availability):
    """A device is available in a step with a probability that depends on its covariates.

    The probability is 1 / (1 + exp(−(intercept + Σ z·Z + Σ x·X))), drawn anew for every step.
    """

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        return _Logistic(batch, self)

    def needs(self) -> tuple[set[str], set[str]]:
        return set(self.z), set(self.x)
