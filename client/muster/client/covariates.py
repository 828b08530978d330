"""What is observed of devices: covariates Z, fixed before enrollment, and X, before each round.

    [groups.covariates]
    z.age = { kind = "normal", mean = 3.0, sd = 1.0 }
    z.os = { kind = "categorical", values = ["14", "15"] }
    x.load = { kind = "uniform" }       # drawn for every round
    x.charge = "battery"                # as the device finds it

Where numbers are needed, a word becomes a column for each of its levels: `os=14`, `os=15`, 0 or 1.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from muster.common.bounds import Number
from muster.common.config import Section
from muster.common.distributions import (
    AnyDistribution,
    Distribution,
    Values,
    distribution_of,
    parse_number,
)
from muster.common.distributions import draw as draw_numbers
from muster.common.exchange import PROPENSITY
from muster.common.seeds import FloatArray, Numbers

DEVICE_QUANTITIES: Final = (
    "battery",
    "charging",
    "unmetered",
    "idle",
    "hour_sin",
    "hour_cos",
    "recent",
)
"""What a device knows of itself before a round, by the names under which X may have it."""

RESERVED: Final = (
    "client",
    "group",
    "profile",
    "enrolled",
    "enrollment_propensity",
    PROPENSITY,
)
"""Names that no covariate has: they stand beside the covariates in tables and rules."""


def _parse_x(value: object) -> object:
    if isinstance(value, str):
        if value not in DEVICE_QUANTITIES:
            raise ValueError(
                f"a device knows no {value!r} of itself; it knows: {', '.join(DEVICE_QUANTITIES)}"
            )
        return value
    return parse_number(value)


AnyX = Annotated[Number | str | SerializeAsAny[Distribution], BeforeValidator(_parse_x)]
"""A covariate X as a setting: the name of a device's quantity, or a distribution of numbers."""


class Covariates(Section):
    """What is observed of the devices of a group."""

    z: dict[str, AnyDistribution] = Field(default_factory=dict)
    """Fixed before enrollment, by name: a distribution over the devices."""

    x: dict[str, AnyX] = Field(default_factory=dict)
    """Seen before every round, by name: a distribution, drawn anew for each device and round; or
    what a device knows of itself: battery, charging, unmetered, idle, hour_sin, hour_cos, recent
    (moving average of its participation)."""

    @field_validator("z", "x")
    @classmethod
    def _named_well(cls, covariates: dict[str, Any]) -> dict[str, Any]:
        for name in covariates:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(
                    f"{name!r} cannot be a covariate's name; expected letters, digits and _, "
                    "and no digit first"
                )
            if name in RESERVED:
                raise ValueError(f"no covariate can be called {name!r}: muster uses the name")
        return covariates

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if both := sorted(self.z.keys() & self.x.keys()):
            raise ValueError(f"{', '.join(both)} stands in both z and x; expected different names")
        return self

    def levels(self) -> dict[str, list[str]]:
        """Every covariate Z with the words that it can be; none, where it is a number.

        Raises:
            ValueError: a file cannot be read.
        """
        return {name: distribution_of(setting).levels() for name, setting in self.z.items()}

    def draw(
        self, seed: int, clients: Sequence[str], positions: Sequence[int]
    ) -> dict[str, Values]:
        """Every covariate Z of some devices, shape (n,); a device's depends on no other device.

        Args:
            positions: of the devices in the population, from 0.

        Raises:
            ValueError: a file does not have what is needed; the message begins with the covariate.
        """
        found = {}
        for name, setting in self.z.items():
            numbers = Numbers(seed, ("z", name), clients, width=2, ahead=1).at(0)
            try:
                found[name] = distribution_of(setting).draw(numbers, clients, positions)
            except ValueError as error:
                raise ValueError(f"covariates.z.{name}: {error}") from None
        return found


def z_columns(
    values: Mapping[str, Sequence[object] | Values],
    levels: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, FloatArray]:
    """Covariates as numbers: those that are, as they are; words as 0/1 columns `name=level`.

    Args:
        values: by name, of n devices each; a covariate is numbers or words.
        levels: which words there can be, as `Covariates.levels` says; those found, where absent.
    """
    columns: dict[str, FloatArray] = {}
    for name, of_devices in values.items():
        found = np.asarray(of_devices)
        if found.dtype.kind != "U":
            columns[name] = found.astype(np.float64)
            continue
        for level in (levels or {}).get(name) or sorted(set(found.tolist())):
            columns[f"{name}={level}"] = (found == level).astype(np.float64)
    return columns


def column_names(levels: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns of `z_columns`, by what `Covariates.levels` says."""
    return [
        column
        for name, words in levels.items()
        for column in ([f"{name}={word}" for word in words] or [name])
    ]


class Observed:
    """The covariates X of some devices, step by step.

    Args:
        clients: whose; n of them.
        ahead: steps whose numbers are drawn at once.
    """

    def __init__(
        self, covariates: Covariates, seed: int, clients: Sequence[str], ahead: int = 64
    ) -> None:
        self._x = covariates.x
        self._numbers = {
            name: Numbers(seed, ("x", name), clients, width=2, ahead=ahead)
            for name, setting in self._x.items()
            if not isinstance(setting, str)
        }

    def at(self, step: int, quantities: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """X by name, each of shape (n,).

        Args:
            quantities: what the devices know of themselves, by the names of DEVICE_QUANTITIES;
                those that X has are needed, each of shape (n,).
        """
        return {
            name: quantities[setting]
            if isinstance(setting, str)
            else draw_numbers(setting, self._numbers[name].at(step))
            for name, setting in self._x.items()
        }
