"""Enrollment: the rules that decide, once per device and before the first round, whether a device
of the population is enrolled.

A rule gives every device a propensity, P(E = 1 | Z). A device is enrolled if its own uniform random
number is below its propensity.

    [groups.enrollment]
    kind = "logistic"
    intercept = -0.5
    z = { age = 1.0, "os=15" = 0.5 }
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from muster.client.availability.logistic import sigmoid
from muster.client.life.covariates import column_names
from muster.common.bounds import Number, in_range
from muster.common.config import Section
from muster.common.distributions import Values
from muster.common.plugins import Plugin, Registry
from muster.common.seeds import BoolArray, FloatArray

PROFILE = "profile"
"""Name under which a rule can also use the device profile of the group, besides the covariates."""


class Enrollment(Plugin):
    """Decides how likely each device of a group is to be enrolled."""

    @abstractmethod
    def propensity(
        self, z: Mapping[str, FloatArray], raw: Mapping[str, Values], n: int
    ) -> FloatArray:
        """Probability of being enrolled, in [0, 1], shape (n,).

        Args:
            z: covariates as numbers by name, each of shape (n,). A category has a column
                `name=level` of 0 or 1 for each level.
            raw: the same covariates as they were drawn, numbers or words, each of shape (n,), and
                the device profile under the name `profile`.
        """

    def check(self, levels: Mapping[str, Sequence[str]]) -> None:
        """Check that this rule can decide with the group's covariates.

        Args:
            levels: the covariates Z of the group by name, each with the words that it can take. A
                covariate that is a number has none.

        Raises:
            ValueError: it cannot. The message says what was found and what was expected, without
                the path of the key.
        """


class EnrollAll(Enrollment):
    """Enrolls every device."""

    def propensity(
        self, z: Mapping[str, FloatArray], raw: Mapping[str, Values], n: int
    ) -> FloatArray:
        return np.ones(n)


class BernoulliEnrollment(Enrollment):
    """Enrolls each device with the same probability, independently of its covariates."""

    probability: Annotated[float, Field(ge=0, le=1)]
    """Probability that a device is enrolled."""

    def propensity(
        self, z: Mapping[str, FloatArray], raw: Mapping[str, Values], n: int
    ) -> FloatArray:
        return np.full(n, self.probability)


class Range(Section):
    """Range of accepted numbers, both ends included."""

    min: Number | None = None
    """Least accepted number; absent: no lower limit."""

    max: Number | None = None
    """Greatest accepted number; absent: no upper limit."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min = {self.min:g} is above max = {self.max:g}")
        return self

    def holds(self, values: FloatArray) -> BoolArray:
        """Whether each value lies inside the range."""
        low = -np.inf if self.min is None else self.min
        high = np.inf if self.max is None else self.max
        inside: BoolArray = (values >= low) & (values <= high)
        return inside


def _parse_condition(value: object) -> object:
    if isinstance(value, Mapping):
        return Range.model_validate(dict(value))
    if isinstance(value, list) and value:
        if all(isinstance(accepted, str) for accepted in value):
            return value
        if all(
            isinstance(a, int | float) and not isinstance(a, bool) and in_range(a) for a in value
        ):
            return [float(accepted) for accepted in value]
    if isinstance(value, Range):
        return value
    raise ValueError(
        f"expected a list of accepted words or of accepted numbers, or a table with min and max; "
        f"found {value!r}"
    )


Condition = Annotated[list[str] | list[Number] | Range, BeforeValidator(_parse_condition)]
"""Accepted values of a covariate."""


class Rule(Enrollment):
    """Enrolls exactly the devices whose covariates satisfy all conditions."""

    where: dict[str, Condition]
    """Conditions by the name of a covariate Z, or `profile`. Each is a list of accepted values, or
    a table with min and max."""

    @model_validator(mode="after")
    def _decides(self) -> Self:
        if not self.where:
            raise ValueError("where is empty; expected a condition, or kind = 'all'")
        return self

    def propensity(
        self, z: Mapping[str, FloatArray], raw: Mapping[str, Values], n: int
    ) -> FloatArray:
        accepted = np.ones(n, dtype=np.bool_)
        for name, condition in self.where.items():
            values = raw[name]
            if isinstance(condition, Range):
                accepted &= condition.holds(values)
            else:
                accepted &= np.isin(values, condition)
        return accepted.astype(np.float64)

    def check(self, levels: Mapping[str, Sequence[str]]) -> None:
        for name, condition in self.where.items():
            if name != PROFILE and name not in levels:
                there = ", ".join([*levels, PROFILE])
                raise ValueError(f"where.{name}: no covariate Z has this name; there are: {there}")
            is_text = name == PROFILE or bool(levels[name])
            wants_text = isinstance(condition, list) and isinstance(condition[0], str)
            if is_text and not wants_text:
                raise ValueError(f"where.{name}: it is a word; expected a list of accepted words")
            if wants_text and not is_text:
                raise ValueError(
                    f"where.{name}: it is a number; expected a list of accepted numbers, or a "
                    "table with min and max"
                )


class LogisticEnrollment(Enrollment):
    """Enrolls each device with P(E = 1 | Z) = 1 / (1 + exp(−(intercept + Σ coefficient · Z)))."""

    intercept: Number = 0.0
    """Log-odds of a device whose covariates are all 0."""

    z: dict[str, Number] = Field(default_factory=dict)
    """Coefficients by the name of a covariate Z, or by `name=level` if its values are words."""

    def propensity(
        self, z: Mapping[str, FloatArray], raw: Mapping[str, Values], n: int
    ) -> FloatArray:
        odds = np.full(n, self.intercept)
        for name, coefficient in self.z.items():
            odds += coefficient * z[name]
        return sigmoid(odds)

    def check(self, levels: Mapping[str, Sequence[str]]) -> None:
        there = column_names(levels)
        for name in self.z:
            if name not in there:
                raise ValueError(
                    f"z.{name}: no covariate Z has this name; there are: "
                    f"{', '.join(there) or 'none'}"
                )


BUILT_IN: dict[str, type[Enrollment]] = {
    "all": EnrollAll,
    "bernoulli": BernoulliEnrollment,
    "logistic": LogisticEnrollment,
    "rule": Rule,
}
ENROLLMENTS = Registry("enrollment", "muster.enrollment", BUILT_IN)

AnyEnrollment = Annotated[SerializeAsAny[Enrollment], BeforeValidator(ENROLLMENTS.parse)]
"""An enrollment rule as a setting of a scenario."""
