"""Devices whose probability of being available depends on their covariates."""

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.client.logit import Logit
from muster.common.seeds import BoolArray, FloatArray


class _Logistic(AvailabilityProcess):
    def __init__(self, cast: DeviceBatch, logit: Logit) -> None:
        super().__init__(cast)
        self._logit = logit
        self._draws = cast.numbers("availability")

    def on(self, scene: StepContext) -> BoolArray:
        drawn: BoolArray = self._draws.at(scene.step)[:, 0] < self.chance(scene)
        return drawn

    def chance(self, scene: StepContext) -> FloatArray:
        return self._logit.chance(self.cast.z, scene.x, len(self.cast.clients))


class LogisticAvailability(Logit, Availability):
    """Every step anew, with probability 1 / (1 + exp(−(intercept + Σ z·Z + Σ x·X)))."""

    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        return _Logistic(cast, self)

    def needs(self) -> tuple[set[str], set[str]]:
        return set(self.z), set(self.x)
