"""Quantities with units, as people write them in a scenario: "6 Mbit/s", "70 ms", "20 MiB".

A bare number is refused, because 10 for a rate may mean bits, bytes, kilo or mega.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]+)\s*")

BANDWIDTH: Mapping[str, float] = {"Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3, "bit/s": 1.0}
DURATION: Mapping[str, float] = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
SIZE: Mapping[str, float] = {
    "GiB": 2.0**30,
    "MiB": 2.0**20,
    "KiB": 2.0**10,
    "GB": 1e9,
    "MB": 1e6,
    "kB": 1e3,
    "B": 1.0,
}


def _reader(units: Mapping[str, float], example: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        matched = _NUMBER.fullmatch(value) if isinstance(value, str) else None
        factor = units.get(matched[2]) if matched else None
        if isinstance(value, str) and value.startswith("-"):
            raise ValueError(f"expected an amount that is not negative, {example}; found {value!r}")
        if matched is None or factor is None:
            known = ", ".join(units)
            raise ValueError(
                f"expected a number with a unit, {example}; found {value!r}; units: {known}"
            )
        amount = float(matched[1]) * factor
        if not math.isfinite(amount):
            raise ValueError(f"expected a finite amount, {example}; found {value!r}")
        return amount

    return read


def _writer(units: Mapping[str, float]) -> Callable[[float], str]:
    base = next(unit for unit, factor in units.items() if factor == 1)

    def write(amount: float) -> str:
        for unit, factor in units.items():
            number = amount / factor
            # The largest unit in which the number is at least 1 and reads back as the same amount.
            if number >= 1 and float(f"{number:.12g}") * factor == amount:
                return f"{number:.12g} {unit}"
        return f"{amount!r} {base}" if amount else f"0 {base}"

    return write


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A kind of quantities; it also marks a type of them, for the generator of the documentation.

    Attributes:
        units: the units, each with its factor to the SI unit.
        example: a quantity as people write it, in quotes.
        read: converts text with a unit to an amount in the SI unit; raises ValueError.
        text: converts an amount to text with a unit.
    """

    units: Mapping[str, float]
    example: str
    read: Callable[[object], float]
    text: Callable[[float], str]


def _quantity(units: Mapping[str, float], example: str) -> Quantity:
    return Quantity(units, example, _reader(units, example), _writer(units))


def _marks(quantity: Quantity) -> tuple[object, ...]:
    return (
        quantity,
        BeforeValidator(quantity.read),
        PlainSerializer(quantity.text),
        WithJsonSchema({"type": "string"}),
    )


RATES = _quantity(BANDWIDTH, '"6 Mbit/s"')
DURATIONS = _quantity(DURATION, '"70 ms"')
SIZES = _quantity(SIZE, '"20 MiB"')

Bandwidth = Annotated[float, *_marks(RATES)]
"""Bits per second."""

Duration = Annotated[float, *_marks(DURATIONS)]
"""Seconds."""

Size = Annotated[float, *_marks(SIZES)]
"""Bytes."""

bandwidth_text = RATES.text
