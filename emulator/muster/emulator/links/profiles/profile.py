"""A constant link as another tool describes it."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from muster.common.units import DURATIONS, RATES


class ForeignLink(NamedTuple):
    """A constant link as another tool describes it.

    Attributes:
        name: its name there.
        down_bps, up_bps: rates in bits per second; None: no limit.
        rtt_s: the round trip that it adds, in seconds.
        loss: share of the packets that are lost.
        note: what muster does otherwise; empty: nothing.
    """

    name: str
    down_bps: float | None = None
    up_bps: float | None = None
    rtt_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    note: str = ""

    def toml(self) -> str:
        """The lines of a scenario that describe this link."""
        values: dict[str, str] = {}
        for key, bps in (("down", self.down_bps), ("up", self.up_bps)):
            if bps is not None:
                values[key] = f'"{RATES.text(bps)}"'
        for key, seconds in (("rtt", self.rtt_s), ("jitter", self.jitter_s)):
            if seconds:
                values[key] = f'"{DURATIONS.text(round(seconds, 6))}"'
        if self.loss:
            values["loss"] = f"{self.loss:g}"
        head = [f"# {self.name}", *([f"# {self.note}"] if self.note else []), "[groups.link]"]
        found = [f"{key} = {value}" for key, value in values.items()]
        return "\n".join([*head, *(found or ['profile = "unshaped"'])])


def number_in(table: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A number of a table, at least 0.

    Raises:
        ValueError: it is missing or something else.
    """
    found = table.get(key, default)
    try:
        number = float(str(found))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"expected a number of at least 0 as {key}, found {found!r}")
    return number


def tables_in(found: object) -> Iterator[Mapping[str, Any]]:
    """Yield all tables in what JSON or a property list contains, at any depth."""
    waiting = [found]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, Mapping):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def json_of(content: bytes) -> object:
    """What a JSON file contains; None: it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
