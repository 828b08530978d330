"""Numbers and quantities that may differ from device to device.

    rtt = "70 ms"                                                        # all devices
    rtt = { kind = "log-normal", median = 70, sigma = 0.4, unit = "ms" }  # each its own

A setting is one number or a distribution. The same object says what a scenario may give, and turns
what it gave into the values of the devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from annotated_types import Ge, Le
from pydantic import BeforeValidator, PlainSerializer

from muster.common.bounds import LARGEST, Bounds
from muster.common.distributions import (
    DISTRIBUTIONS,
    Distribution,
    File,
    numbers_for_devices,
    parse_number,
)
from muster.common.seeds import FloatArray
from muster.common.units import Quantity


@dataclass(frozen=True, slots=True, eq=False)
class PerDevice:
    """A number that may differ from device to device.

    Values of a distribution beyond the bounds are cut to them, but those of a file are refused.

    Attributes:
        least, most: its bounds.
        quantity: the units in which it is given; None: it has none.
    """

    least: float
    most: float
    quantity: Quantity | None = None

    @property
    def number(self) -> tuple[Any, ...]:
        """What is annotated to the number itself, if it is the same for all devices."""
        return Ge(self.least), Le(self.most)

    @property
    def marks(self) -> tuple[Any, ...]:
        """What is annotated to a number or a distribution."""
        return self, BeforeValidator(self.read), PlainSerializer(self.write)

    def bounds_in(self, unit: str | None) -> Bounds:
        """The bounds in a unit; None: in the SI unit."""
        return self.least / self._factor(unit), self.most / self._factor(unit)

    def _factor(self, unit: str | None) -> float:
        return 1.0 if self.quantity is None or unit is None else self.quantity.units[unit]

    def read(self, value: object) -> object:
        """The number or the distribution that a scenario gives.

        Raises:
            ValueError: it gives something else, or a number beyond the bounds.
        """
        if isinstance(value, Mapping | Distribution):
            return self._distribution(value)
        if self.quantity is not None:
            amount = self.quantity.read(value)
        else:
            number = parse_number(value)
            assert isinstance(number, float)
            amount = number
        for wrong, words, bound in (
            (amount < self.least, "at least", self.least),
            (amount > self.most, "at most", self.most),
        ):
            if wrong:
                raise ValueError(f"expected {words} {bound:g}, found {value!r}")
        return amount

    def _distribution(self, value: object) -> object:
        if self.quantity is None:
            return parse_number(value)
        found = DISTRIBUTIONS.parse(value)
        assert isinstance(found, Distribution)
        if found.unit not in self.quantity.units:
            known = ", ".join(self.quantity.units)
            raise ValueError(f"expected unit to be one of {known}; found {found.unit!r}")
        parse_number(found.model_copy(update={"unit": None}))  # refuses words
        return found

    def write(self, value: float | Distribution) -> object:
        """The number or the distribution as a scenario gives it."""
        if isinstance(value, Distribution):
            return value.model_dump(exclude_none=True)
        return value if self.quantity is None else self.quantity.text(value)

    def draw(
        self,
        setting: float | Distribution,
        seed: int,
        clients: Sequence[str],
        positions: Sequence[int],
        *purpose: str,
    ) -> FloatArray:
        """The devices' values, in the SI unit.

        Args:
            clients, positions, purpose: as in `draw_for_devices`.

        Raises:
            ValueError: a value to look up is missing, is a word, or is beyond the bounds.
        """
        if not isinstance(setting, Distribution):
            return np.full(len(clients), float(setting))
        if isinstance(setting, File):
            setting.require_numbers(*self.bounds_in(setting.unit))
        values = numbers_for_devices(setting, seed, clients, positions, *purpose)
        if not np.isfinite(values).all():
            at = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"expected a number of every device, found {values[at]:g} of {clients[at]}"
            )
        return np.clip(self._factor(setting.unit) * values, self.least, self.most)


ANY = PerDevice(-LARGEST, LARGEST)
"""Any number."""
