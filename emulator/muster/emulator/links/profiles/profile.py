"""A constant link as another tool describes it."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from muster.common.jitter import JitterDistribution
from muster.common.units import DURATIONS, RATES


class ForeignLink(NamedTuple):
    """A constant link as another tool describes it.

    Attributes:
        name: its name there.
        down_bps, up_bps: rates in bits per second; None: no limit.
        rtt_s: the round trip that it adds, in seconds.
        delays_s: the delays towards and from the device, in seconds; None: half of it each.
        jitter_s: standard deviation of the random part of each delay.
        loss: share of the packets that are lost, `loss_burst` of them in a row in the mean.
        losses: of both directions, if they may differ.
        queues_bytes: lengths of the queues before both directions, first in, first out; None: it
            says nothing of them.
        note: what muster does otherwise; empty: nothing.
    """

    name: str
    down_bps: float | None = None
    up_bps: float | None = None
    rtt_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    note: str = ""
    delays_s: tuple[float, float] | None = None
    jitter_distribution: JitterDistribution = "late"
    loss_burst: float = 1.0
    queues_bytes: tuple[float | None, float | None] = (None, None)
    losses: tuple[float, float] | None = None

    def toml(self) -> str:
        """The lines of a scenario that describe this link."""
        values: dict[str, str] = {}
        for key, bps in (("down", self.down_bps), ("up", self.up_bps)):
            if bps is not None:
                values[key] = f'"{RATES.text(bps)}"'
        down_s, up_s = self.delays_s or (self.rtt_s / 2, self.rtt_s / 2)
        times = {"rtt": self.rtt_s} if down_s == up_s else {"delay_down": down_s, "delay_up": up_s}
        for key, seconds in {**times, "jitter": self.jitter_s}.items():
            if seconds:
                values[key] = f'"{DURATIONS.text(round(seconds, 6))}"'
        if self.jitter_s and self.jitter_distribution != "late":
            values["jitter_distribution"] = f'"{self.jitter_distribution}"'
        if self.losses is not None and self.losses[0] != self.losses[1]:
            for key, share in zip(("loss_down", "loss_up"), self.losses, strict=True):
                values[key] = f"{share:g}"
        elif self.loss:
            values["loss"] = f"{self.loss:g}"
        if self.loss and self.loss_burst > 1:
            values["loss_burst"] = f"{self.loss_burst:g}"
        for key, nbytes in zip(("queue_down", "queue_up"), self.queues_bytes, strict=True):
            if nbytes is not None:
                values[key] = f'"{nbytes / 1000:g} kB"'
        if any(self.queues_bytes):
            values["queueing"] = '"fifo"'
        told = [_one_line(text) for text in (self.name, self.note) if text]
        head = [*(f"# {text}" for text in told), "[groups.link]"]
        found = [f"{key} = {value}" for key, value in values.items()]
        return "\n".join([*head, *(found or ['profile = "unshaped"'])])


def _one_line(text: str) -> str:
    """A text as a comment can have it."""
    return "".join(each if each.isprintable() else " " for each in text)


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


def named_tables_in(found: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all tables with the keys under which they are; empty if they are in a list."""
    names = {
        id(value): str(key)
        for table in tables_in(found)
        for key, value in table.items()
        if isinstance(value, Mapping)
    }
    for table in tables_in(found):
        yield names.get(id(table), ""), table


def json_of(content: bytes) -> object:
    """What a JSON file contains; None: it is none."""
    if content[:1000].lstrip()[:1] not in (b"{", b"["):  # before 100 MB of it are decoded
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
