"""Comparison of tables of tables, value by value."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.emulator.run_audit.result import CheckLog

ROUNDING = 1e-9
"""The largest relative difference of two numbers that the same code has computed on two
machines."""

_NEARLY_ZERO = 1e-12

MISSING = "nothing"
"""Stands for a value that is not there."""


def agree(right: Any, found: Any, tolerance: float = ROUNDING) -> bool:
    """Whether two values are equal, or are numbers that were only rounded differently."""
    if isinstance(right, bool) or isinstance(found, bool):
        return bool(right is found)
    if isinstance(right, int | float) and isinstance(found, int | float):
        if right == found or (math.isnan(right) and math.isnan(found)):
            return True
        return math.isclose(right, found, rel_tol=tolerance, abs_tol=_NEARLY_ZERO)
    return bool(right == found)


def compare(
    log: CheckLog,
    what: str,
    right: Any,
    found: Any,
    round: int | None = None,
    device: str | None = None,
    tolerance: float = ROUNDING,
) -> None:
    """Compare two values, which may be numbers that were rounded differently."""
    same = agree(right, found, tolerance)
    log.compare(what, found if same else right, found, round, device)


def compare_leaves(
    log: CheckLog, what: str, right: Any, found: Any, tolerance: float = ROUNDING
) -> None:
    """Compare two tables of tables. The places are named after the keys.

    Args:
        what: a sentence with the place as `{}`.
    """
    for place, expected, value in pairs(right, found):
        compare(log, what.format(place), expected, value, tolerance=tolerance)


def pairs(right: Any, found: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the values of two tables of tables in pairs, each with the name of its place. A value
    that one of them does not have is `MISSING`."""
    if isinstance(right, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys([*right, *found]):
            inner = f"{place}.{key}" if place else str(key)
            yield from pairs(right.get(key, MISSING), found.get(key, MISSING), inner)
    elif _is_list(right) and _is_list(found) and len(right) == len(found):
        for number, (one, other) in enumerate(zip(right, found, strict=True)):
            yield from pairs(one, other, f"{place}[{number}]")
    else:
        yield place, right, found


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def table_of(text: Any) -> Mapping[str, Any]:
    """JSON as a table; one that says what it was if it is none."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {"not JSON": str(text)}
    return found if isinstance(found, dict) else {"no table": found}
