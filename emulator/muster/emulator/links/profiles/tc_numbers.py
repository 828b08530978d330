"""Numbers in commands of `tc`, with the units of `tc(8)`."""

import math

NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
"""The form of a number; its unit follows at once."""

_RATES = {
    f"{prefix}{unit}": factor * bits
    for prefix, factor in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9))
    for unit, bits in (("bit", 1.0), ("bps", 8.0))
}


def number_in(text: str) -> float:
    """The number that a text is.

    Raises:
        ValueError: it is infinite or none.
    """
    if not math.isfinite(number := float(text)):
        raise ValueError(f"expected a finite number, found {text!r}")
    return number


def factor_of(unit: str, units: dict[str, float]) -> float:
    """What a unit stands for.

    Raises:
        ValueError: there is no such unit.
    """
    if unit not in units:
        raise ValueError(f"expected a unit of {', '.join(filter(None, units))}, found {unit!r}")
    return units[unit]


def bps_of(number: str, unit: str) -> float:
    """A rate in bits per second.

    Raises:
        ValueError: it is none.
    """
    return number_in(number) * factor_of(unit, _RATES)


def not_read(key: str) -> ValueError:
    """The refusal of a quantity that cannot be read, such as a variable of a shell."""
    return ValueError(
        f"expected a number after {key!r}; variables are not read: give the commands with their "
        f"values, or what `tc qdisc show` and `tc class show` print"
    )
