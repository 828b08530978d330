"""Whether a device that was called takes part: the rules, its own will, and what goes wrong.

    available --+--> eligible --> willing --> trains --> delivers
                |        |           |           |
             offline  battery,    unwilling   drop-out, interrupted,
                      metered …               powered off

The first three are asked at the moment of the call, and a device that says no declines with the
reason. What goes wrong later is an abort: it had accepted.
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
"""What can be required of a device's state, and why it declines where it is not so."""


class ParticipationSettings(Section):
    """Who may take part, and who does."""

    require: list[Literal["charging", "unmetered", "idle"]] = Field(default_factory=list)
    """The production rules are all three (Bonawitz et al., MLSys 2019, section 2)."""

    battery_min: Share = 0.3
    """Charge below which a device declines (Android's FederatedCompute:
    TRAINING_MIN_BATTERY_LEVEL = 30). A device on mains is always full."""

    willing: Share | Logit = 1.0
    """Its own decision: a probability, or a logistic model of its covariates
    (`intercept`, `z`, `x`)."""

    drop_out: Share | None = None
    """Probability that what was accepted is not delivered. Absent: that of the device profile."""
