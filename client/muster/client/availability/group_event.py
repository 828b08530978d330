"""Devices that are available together, because something happens to their whole group.

Nobody coordinates: every device draws what happens to its group from the same stream.
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
from muster.client.logit import sigmoid
from muster.common.bounds import LongTime, Number
from muster.common.distributions import Normal
from muster.common.seeds import BoolArray, FloatArray, Numbers

_NODES = 200
"""Of the quadrature over the latent factor; off by less than 1e-8 for |beta| up to 5."""

_PARTS = {"event": ("device_probability",), "latent": ("beta", "tau_s")}
"""Settings that only one of the forms has."""


class _Event(AvailabilityProcess):
    def __init__(self, cast: DeviceBatch, probability: float, device_probability: float) -> None:
        super().__init__(cast)
        self._probability, self._device_probability = probability, device_probability
        self._events = Numbers(cast.seed, ("group-event",), [cast.group], ahead=cast.ahead)
        self._draws = cast.numbers("availability")

    def on(self, scene: StepContext) -> BoolArray:
        if self._events.at(scene.step)[0, 0] >= self._probability:
            return np.zeros(len(self.cast.clients), dtype=np.bool_)
        drawn: BoolArray = self._draws.at(scene.step)[:, 0] < self._device_probability
        return drawn

    def chance(self, scene: StepContext) -> FloatArray:
        return np.full(len(self.cast.clients), self._probability * self._device_probability)


class _Latent(AvailabilityProcess):
    def __init__(self, cast: DeviceBatch, log_odds: float, beta: float, tau_s: float) -> None:
        super().__init__(cast)
        self._log_odds, self._beta = log_odds, beta
        self._kept = math.exp(-cast.step_s / tau_s)
        self._new = math.sqrt(-math.expm1(-2 * cast.step_s / tau_s))
        self._shocks = Numbers(cast.seed, ("group-event",), [cast.group], 2, cast.ahead)
        self._draws = cast.numbers("availability")
        # G of every step so far: 8 bytes each, of the group and not of a device.
        self._factors = array("d")

    def on(self, scene: StepContext) -> BoolArray:
        chance = sigmoid(np.array([self._log_odds + self._beta * self._factor(scene.step)]))
        drawn: BoolArray = self._draws.at(scene.step)[:, 0] < chance
        return drawn

    def chance(self, scene: StepContext) -> FloatArray:
        return np.full(len(self.cast.clients), self._mean)

    @cached_property
    def _mean(self) -> float:
        """Over G, by Gauss-Hermite quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        chances = sigmoid(self._log_odds + self._beta * nodes)
        return float(weights @ chances / weights.sum())

    def _factor(self, step: int) -> float:
        """G at a step: AR(1), the Ornstein-Uhlenbeck process looked at once a step."""
        for i in range(len(self._factors), step + 1):
            shock = float(Normal().draw(self._shocks.at(i))[0])
            before = self._factors[-1] if i else None
            self._factors.append(
                shock if before is None else self._kept * before + self._new * shock
            )
        return self._factors[step]


class GroupEvent(Availability):
    """What happens to the group decides about all its devices.

    In the form "event" something happens in a step or not, and where it does not, nobody is
    available. In the form "latent" a hidden factor G of the group, normal with mean 0 and variance
    1, moves the log-odds of all: logit π = logit(probability) + beta · G.
    """

    form: Literal["event", "latent"] = "event"
    """Event: Harrak et al., Bias Mitigation for Federated Learning with Spatially Correlated
    Participation, 2025. Latent: an assumption, the usual form of a random effect."""

    probability: Annotated[float, Field(gt=0, le=1)]
    """Event: that it happens in a step. Latent: of being available where G is 0; below 1."""

    device_probability: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Event: of a device being available when it happens (Harrak et al., figure 1)."""

    beta: Number = 1.0
    """Latent: what one standard deviation of G adds to the log-odds. The default is an
    assumption."""

    tau_s: LongTime = 1800.0
    """Latent: scenario seconds after which the correlation of G has fallen to 1/e. The default is
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
            raise ValueError('probability = 1 leaves form = "latent" nothing to move; below 1')
        return self

    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        if self.form == "event":
            return _Event(cast, self.probability, self.device_probability)
        log_odds = math.log(self.probability / (1 - self.probability))
        return _Latent(cast, log_odds, self.beta, self.tau_s)

    def closed_form(self) -> GroupEvents | None:
        if self.form == "latent":
            return None
        return GroupEvents(self.probability, self.device_probability)
