"""A logistic model of a device's covariates Z and X, and availability with its probability."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.common.bounds import Number
from muster.common.config import Section
from muster.common.seeds import BoolArray, FloatArray


class Logit(Section):
    """A logistic model of a probability: p = 1 / (1 + exp(−(intercept + Σ z·Z + Σ x·X)))."""

    intercept: Number
    """The log-odds ln(p / (1 − p)) when all covariates are 0."""

    z: dict[str, Number] = Field(default_factory=dict)
    """Coefficients of covariates Z, by name; a level of a categorical covariate is `name=level`."""

    x: dict[str, Number] = Field(default_factory=dict)
    """Coefficients of covariates X, by name."""

    def chance(
        self, z: Mapping[str, FloatArray], x: Mapping[str, FloatArray], n: int
    ) -> FloatArray:
        """The probability of each of n devices, shape (n,).

        Args:
            z: covariates Z by name, each of shape (n,).
            x: covariates X by name, each of shape (n,).
        """
        odds = np.full(n, self.intercept)
        for coefficients, values in ((self.z, z), (self.x, x)):
            for name, coefficient in coefficients.items():
                odds += coefficient * values[name]
        return sigmoid(odds)


def sigmoid(log_odds: FloatArray) -> FloatArray:
    """1 / (1 + exp(−log_odds)), exact to a few units in the last place at both ends."""
    chance: FloatArray = np.exp(-np.logaddexp(0.0, -log_odds))
    return chance


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
