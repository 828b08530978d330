"""Participation: whether a called device takes part, by rules, by its own will and by accidents.

    available --+--> eligible --> willing --> trains --> delivers
                |        |           |           |
             offline  battery,    unwilling   drop-out, interrupted,
                      metered …               powered off

The first three are decided at the moment of the call; a device that fails one declines with the
reason. If something goes wrong later, the device aborts, because it has already accepted.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from muster.client.logit import Logit
from muster.common.config import Section
from muster.common.exchange import Reason

Share = Annotated[float, Field(ge=0, le=1)]

REQUIREMENTS: Final = {
    "charging": Reason.NOT_CHARGING,
    "unmetered": Reason.METERED,
    "idle": Reason.BUSY,
}
"""Conditions that can be required of a device, and the reason with which it declines otherwise."""


class ParticipationSettings(Section):
    """The rules of participation, and how often devices follow a call."""

    require: list[Literal["charging", "unmetered", "idle"]] = Field(default_factory=list)
    """Conditions that a device must meet to take part. Production systems require all three
    (Bonawitz et al., MLSys 2019, section 2)."""

    battery_min: Share = 0.3
    """Charge, as a share, below which a device declines (Android's FederatedCompute:
    TRAINING_MIN_BATTERY_LEVEL = 30). A device on mains is always full."""

    willing: Share | Logit = 1.0
    """Probability that a device is willing to take part: a number, or a logistic model of its
    covariates (`intercept`, `z`, `x`)."""

    drop_out: Share | None = None
    """Probability that a device drops out after it has accepted. Absent: that of its profile."""
