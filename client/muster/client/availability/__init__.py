"""Availability: whether a device can be reached at a moment. Every kind of process has a file here.

To add your own, derive a class from `Availability`, and name it as `module:Class` in the scenario
or in the entry-point group `muster.availabilities`.
"""

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.client.availability.always import Always
from muster.client.availability.bernoulli import BernoulliAvailability
from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.client.availability.diurnal import Diurnal
from muster.client.availability.group_event import GroupEvent
from muster.client.availability.k_of_n import KOfN
from muster.client.availability.logistic import LogisticAvailability
from muster.client.availability.markov import Markov
from muster.client.availability.trace import Replay
from muster.common.plugins import Registry

BUILT_IN: dict[str, type[Availability]] = {
    "always": Always,
    "bernoulli": BernoulliAvailability,
    "diurnal": Diurnal,
    "group-event": GroupEvent,
    "k-of-n": KOfN,
    "logistic": LogisticAvailability,
    "markov": Markov,
    "trace": Replay,
}
AVAILABILITIES = Registry("availability", "muster.availabilities", BUILT_IN)

AnyAvailability = Annotated[SerializeAsAny[Availability], BeforeValidator(AVAILABILITIES.parse)]

__all__ = [
    "AVAILABILITIES",
    "AnyAvailability",
    "Availability",
    "AvailabilityProcess",
    "DeviceBatch",
    "StepContext",
]
