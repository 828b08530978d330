"""Participation: whether a called device takes part, by rules, by its own will and by accidents.

    available --+--> eligible --> willing --> trains --> delivers
                |        |           |           |
             offline  battery,   unwilling,  drop-out, interrupted,
                      metered …  no gain     powered off

A device decides in three steps: availability, eligibility and willingness. If it fails one, it
declines with the reason. Willingness has two parts: a draw with the probability `willing`, and for
a rational device the model, which it fetches and judges (`muster.client.calls.willingness`).
Everything but the model is decided at the moment of the call. If something goes wrong later, the
device aborts, because it has already accepted.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from muster.client.availability.logistic import Logit
from muster.common.bounds import ROUNDS
from muster.common.config import Section
from muster.common.exchange import Reason

Share = Annotated[float, Field(ge=0, le=1)]

REQUIREMENTS: Final = {
    "charging": Reason.NOT_CHARGING,
    "unmetered": Reason.METERED,
    "idle": Reason.BUSY,
}
"""Conditions that can be required of a device, and the reason with which it declines otherwise."""


class UtilitySettings(Section):
    """How a rational device decides whether a model serves it. By default it accepts a call if

        accuracy of the received model > (1 + margin) · accuracy of its own model - tolerance,

    both measured on its own validation examples (`task.validation_ratio`).

    If the aggregator announces weights (feduca), a device also fits its utility u(r) = -a·r² + b·r
    + c as a function of its weight r, and reports it with a threshold γ.

    Yashwanth, Singh, Nayak, Bulusu, Chakraborty, Federated Learning by Utility-Constrained
    Stochastic Aggregation for Improving Rational Participation, 2026, eq. 1, 3 and 4.
    https://arxiv.org/abs/2605.18020
    """

    test: Literal["measured", "fitted", "coin", "always"] = "measured"
    """measured: the rule above. fitted: u(r) >= γ - tolerance at the announced weight r, with the u
    and γ that the device has reported last (Algorithm 1 of the paper). coin: accept with
    probability 0.5, drawn from the seed, and always: accept every model; these two are controls, in
    which devices measure and report as with the others."""

    threshold: Literal["local", "global", "weight"] = "local"
    """γ that a device reports. local: (1 + margin) times the accuracy of its own model. global: the
    same factor times that of the received model. weight: u(r) at the announced r (Algorithm 1).
    With test = "measured" it concerns the server alone."""

    inflation: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Share by which a device overstates its threshold: it reports γ·(1 + inflation), and holds to
    that with test = "fitted" (appendix A.12 of the paper)."""

    forced_rounds: Annotated[int, Field(ge=1, le=ROUNDS)] = 1
    """Number of rounds, from the first of the run, in which devices accept without a test; 5 in
    FedAvg-WS of the paper. A device also accepts when it is called for the first time."""

    points: Annotated[int, Field(ge=3, le=1000)] = 9
    """Number of weights at which the utility is measured for the fit."""

    largest_weight: Annotated[float, Field(ge=0.005, le=1)] = 1.0
    """The largest of these weights; the smallest is 0."""

    dense_points: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of weights, from 0 to the largest, at which R² of the fitted utility is measured; 0:
    none. Each costs an evaluation on the validation examples in every round."""

    margin: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Relative gain over its own model that the device asks for."""

    cost_per_mb: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Accuracy that a megabyte (10⁶ bytes) of the round's model and update must bring if the
    device's network costs money at the moment of the call: an expensive link raises what it asks
    for. The rule above becomes received > (1 + margin) · own - tolerance + cost, and the threshold
    γ rises by the same cost."""

    tolerance: Share = 0.0
    """Accuracy that the device gives up for taking part. With a tolerance it accepts a model that
    is as good as its own, for example if both are always right."""

    @field_validator("dense_points")
    @classmethod
    def _is_dense(cls, points: int) -> int:
        if 0 < points < 3:
            raise ValueError(f"expected 0, or at least 3 weights to measure R²; found {points}")
        return points


class ParticipationSettings(Section):
    """The rules of participation, and how often devices follow a call."""

    kind: Literal["compliant", "rational"] = "compliant"
    """compliant: devices do not ask what the model is worth to them. rational: a device keeps a
    model of its own, and takes part in a round only if the received model is better for it."""

    utility: UtilitySettings | None = None
    """How a rational device decides; only with kind = "rational"."""

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

    @model_validator(mode="after")
    def _utility_of_rational(self) -> Self:
        if self.utility is not None and self.kind != "rational":
            raise ValueError(
                f"utility needs kind = 'rational'; found {self.kind!r}. Set kind, or leave utility "
                f"out"
            )
        return self

    @property
    def rational(self) -> UtilitySettings | None:
        """How the devices decide if they are rational; None if they are not."""
        return (self.utility or UtilitySettings()) if self.kind == "rational" else None
