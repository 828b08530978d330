"""Covariates of devices: Z is fixed before enrollment, X is observed before each round.

    [groups.covariates]
    z.age = { kind = "normal", mean = 3.0, sd = 1.0 }
    z.os = { kind = "categorical", values = ["14", "15"] }
    x.load = { kind = "uniform" }       # drawn for every round
    x.charge = "battery"                # the device's own state

Where numbers are needed, a covariate of words becomes a column of 0 and 1 for each of its levels:
`os=14`, `os=15`.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from muster.common.bounds import Bounds, Number
from muster.common.config import Section
from muster.common.distributions import (
    AnyDistribution,
    Distribution,
    Values,
    distribution_of,
    draw_for_devices,
    parse_number,
)
from muster.common.distributions import draw as draw_numbers
from muster.common.exchange import PROPENSITY
from muster.common.seeds import FloatArray, Numbers

DEVICE_QUANTITIES: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        "battery": (0.0, 1.0),
        "charging": (0.0, 1.0),
        "unmetered": (0.0, 1.0),
        "idle": (0.0, 1.0),
        "hour_sin": (-1.0, 1.0),
        "hour_cos": (-1.0, 1.0),
        "recent": (0.0, 1.0),
    }
)
"""Quantities that a device knows of itself before a round, which X may have by these names, with
their bounds."""

RESERVED: Final = (
    "client",
    "group",
    "profile",
    "enrolled",
    "enrollment_propensity",
    PROPENSITY,
)
"""Names that no covariate may have, because they stand beside covariates in tables and rules."""


def _parse_x(value: object) -> object:
    if isinstance(value, str):
        if value not in DEVICE_QUANTITIES:
            raise ValueError(
                f"{value!r} is not a device quantity; expected one of: "
                f"{', '.join(DEVICE_QUANTITIES)}"
            )
        return value
    found = parse_number(value)
    if isinstance(found, Distribution) and found.looks_up:
        raise ValueError(
            f"{found.kind!r} gives a device one value for good, but X is observed before every "
            f"round; make it a covariate Z"
        )
    return found


AnyX = Annotated[Number | str | SerializeAsAny[Distribution], BeforeValidator(_parse_x)]
"""A covariate X as a setting: the name of a device quantity, or a distribution of numbers."""


class Covariates(Section):
    """The covariates of the devices of a group."""

    z: dict[str, AnyDistribution] = Field(default_factory=dict)
    """Covariates Z, fixed before enrollment: for each name a distribution over the devices."""

    x: dict[str, AnyX] = Field(default_factory=dict)
    """Covariates X, observed before every round. For each name give a distribution, drawn anew for
    each device and round, or a quantity that the device knows of itself: battery, charging,
    unmetered, idle, hour_sin, hour_cos, recent (moving average of its participation)."""

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
            raise ValueError(f"{', '.join(both)} is in both z and x; expected different names")
        return self

    def levels(self) -> dict[str, list[str]]:
        """Every covariate Z with its levels: the words that it can be. A number has no levels.

        Raises:
            ValueError: a file cannot be read.
        """
        return {name: distribution_of(setting).levels() for name, setting in self.z.items()}

    def x_bounds(self) -> dict[str, Bounds]:
        """Every covariate X with the smallest and the largest value that a device can observe."""
        return {
            name: DEVICE_QUANTITIES[setting]
            if isinstance(setting, str)
            else distribution_of(setting).bounds()
            for name, setting in self.x.items()
        }

    def draw(
        self, seed: int, clients: Sequence[str], positions: Sequence[int]
    ) -> dict[str, Values]:
        """Draw every covariate Z of some devices, each of shape (n,).

        The values of a device do not depend on other devices.

        Args:
            positions: positions of the devices in the population, from 0.

        Raises:
            ValueError: a file lacks a value; the message begins with the covariate.
        """
        found = {}
        for name, setting in self.z.items():
            try:
                found[name] = draw_for_devices(setting, seed, clients, positions, "z", name)
            except ValueError as error:
                raise ValueError(f"covariates.z.{name}: {error}") from None
        return found


def z_columns(
    values: Mapping[str, Sequence[object] | Values],
    levels: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, FloatArray]:
    """Covariates as columns of numbers: words become 0/1 columns `name=level`.

    Args:
        values: by name, the values of n devices; a covariate has numbers or words.
        levels: possible words, from `Covariates.levels`. If a covariate has none here, the words
            that occur in `values` are its levels.
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
    """Names of the columns of `z_columns`, from the result of `Covariates.levels`."""
    return [
        column
        for name, words in levels.items()
        for column in ([f"{name}={word}" for word in words] or [name])
    ]


class Observed:
    """The covariates X of some devices, step by step.

    Args:
        clients: names of the n devices.
        ahead: number of steps for which random numbers are drawn at once.
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
            quantities: the device quantities, by the names of DEVICE_QUANTITIES, each of shape
                (n,); at least those that X has.
        """
        return {
            name: quantities[setting]
            if isinstance(setting, str)
            else draw_numbers(setting, self._numbers[name].at(step))
            for name, setting in self._x.items()
        }
