"""Availability that the devices of a group share, because something happens to the whole group.

There is no coordinator: every device draws the events of its group from the same stream.
"""

import math
from array import array
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    GroupEvents,
    StepContext,
)
from muster.client.availability.logistic import sigmoid
from muster.common.bounds import LongTime, Number
from muster.common.distributions import Normal
from muster.common.seeds import BoolArray, FloatArray, Numbers

_NODES = 200
"""Nodes of the quadrature over the latent factor; the error is below 1e-8 for |beta| up to 5."""

_PARTS = {"event": ("device_probability",), "latent": ("beta", "tau_s")}
"""Settings that belong to only one of the forms."""


class _Event(AvailabilityProcess):
    def __init__(self, batch: DeviceBatch, probability: float, device_probability: float) -> None:
        super().__init__(batch)
        self._probability, self._device_probability = probability, device_probability
        self._events = Numbers(batch.seed, ("group-event",), [batch.group], ahead=batch.ahead)
        self._draws = batch.numbers("availability")

    def on(self, context: StepContext) -> BoolArray:
        if self._events.at(context.step)[0, 0] >= self._probability:
            return np.zeros(len(self.batch.clients), dtype=np.bool_)
        drawn: BoolArray = self._draws.at(context.step)[:, 0] < self._device_probability
        return drawn

    def chance(self, context: StepContext) -> FloatArray:
        return np.full(len(self.batch.clients), self._probability * self._device_probability)


class _Latent(AvailabilityProcess):
    def __init__(self, batch: DeviceBatch, log_odds: float, beta: float, tau_s: float) -> None:
        super().__init__(batch)
        self._log_odds, self._beta = log_odds, beta
        self._kept = math.exp(-batch.step_s / tau_s)
        self._new = math.sqrt(-math.expm1(-2 * batch.step_s / tau_s))
        self._shocks = Numbers(batch.seed, ("group-event",), [batch.group], 2, batch.ahead)
        self._draws = batch.numbers("availability")
        # G of every step so far: 8 bytes per step, once for the group and not for every device.
        self._factors = array("d")

    def on(self, context: StepContext) -> BoolArray:
        chance = sigmoid(np.array([self._log_odds + self._beta * self._factor(context.step)]))
        drawn: BoolArray = self._draws.at(context.step)[:, 0] < chance
        return drawn

    def chance(self, context: StepContext) -> FloatArray:
        return np.full(len(self.batch.clients), self._mean)

    @cached_property
    def _mean(self) -> float:
        """The mean probability over G, by Gauss-Hermite quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        chances = sigmoid(self._log_odds + self._beta * nodes)
        return float(weights @ chances / weights.sum())

    def _factor(self, step: int) -> float:
        """G at a step: AR(1), which is the Ornstein-Uhlenbeck process sampled once a step."""
        for i in range(len(self._factors), step + 1):
            shock = float(Normal().draw(self._shocks.at(i))[0])
            before = self._factors[-1] if i else None
            self._factors.append(
                shock if before is None else self._kept * before + self._new * shock
            )
        return self._factors[step]


class GroupEvent(Availability):
    """The devices of a group are available together, because of an event or a hidden factor.

    In the form "event" an event happens in a step or not, and no device is available in a step
    without it. In the form "latent" a hidden factor G of the group, normal with mean 0 and variance
    1, shifts the log-odds of all its devices: logit π = logit(probability) + beta · G.
    """

    form: Literal["event", "latent"] = "event"
    """event: from Harrak et al., Bias Mitigation for Federated Learning with Spatially Correlated
    Participation, 2025. latent: an assumption, the usual form of a random effect."""

    probability: Annotated[float, Field(gt=0, le=1)]
    """event: probability that the event happens in a step. latent: probability that a device is
    available when G is 0; below 1."""

    device_probability: Annotated[float, Field(gt=0, le=1)] = 0.95
    """event: probability that a device is available when the event happens (Harrak et al., figure
    1)."""

    beta: Number = 1.0
    """latent: the amount that one standard deviation of G adds to the log-odds. The default is an
    assumption."""

    tau_s: LongTime = 1800.0
    """latent: scenario seconds after which the correlation of G has fallen to 1/e. The default is
    an assumption: outages of half an hour."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        other = "latent" if self.form == "event" else "event"
        for name in _PARTS[other]:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f'{name} belongs to form = "{other}", and the form is "{self.form}"; leave it '
                    f"out, or change the form"
                )
        if self.form == "latent" and self.probability == 1:
            raise ValueError(
                'probability = 1 leaves nothing to shift for form = "latent"; expected below 1'
            )
        return self

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        if self.form == "event":
            return _Event(batch, self.probability, self.device_probability)
        log_odds = math.log(self.probability / (1 - self.probability))
        return _Latent(batch, log_odds, self.beta, self.tau_s)

    def closed_form(self) -> GroupEvents | None:
        if self.form == "latent":
            return None
        return GroupEvents(self.probability, self.device_probability)
