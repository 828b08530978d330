"""Commands of `tc` with netem, tbf, htb or hfsc. What leaves an interface is the way up, and what
leaves an `ifb`, to which arriving packets are redirected, the way down.

The meaning of numbers is that of `tc-netem(8)` and of `net/sched/sch_netem.c`: jitter is uniform
unless a distribution is named. If there are several classes, each is a link.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import NamedTuple

from muster.common.errors import listed
from muster.common.jitter import JitterDistribution
from muster.emulator.links.profiles.profile import ForeignLink
from muster.emulator.links.profiles.tc_classes import TcClasses
from muster.emulator.links.profiles.tc_numbers import (
    NUMBER,
    bps_of,
    factor_of,
    not_read,
    number_in,
)

_TIMES = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "": 1e-6}
_SIZES = {"b": 1.0, "": 1.0, "k": 1024.0, "kb": 1024.0, "m": 1024.0**2, "mb": 1024.0**2}
_PACKET_BYTES = 1500

_DELAY = re.compile(rf"\bdelay\s+{NUMBER}([a-z]*)(?:\s+{NUMBER}([a-z]+)(?=\s|$))?")
_DISTRIBUTION = re.compile(r"\bdistribution\s+(\w+)")
_LOSS = re.compile(rf"\bloss\s+(random\s+|gemodel\s+|state\s+)?((?:{NUMBER}%?\s*)+)")
_RATE = re.compile(rf"\brate\s+{NUMBER}([a-z]+)")
_LIMIT = re.compile(rf"\blimit\s+{NUMBER}([a-z]*)")
_LATENCY = re.compile(rf"\blatency\s+{NUMBER}([a-z]*)")
_DEVICE = re.compile(r"\bdev\s+(\S+)")
_COMMENT = re.compile(r"(?:^|\s)#")
_DELETES = re.compile(r"\bqdisc\s+del(ete)?\b")
_CHANGES = re.compile(r"\bqdisc\s+(change|replace)\b")
_CLASS = re.compile(r"\bclass\b")
_QUEUE = re.compile(r"\b(netem|tbf)\b")
_PARENT = re.compile(r"\bparent\s+(\S+)")
_HANDLE = re.compile(r"\b(?:handle|netem|tbf)\s+([0-9a-f]+):")
_LEFT_OUT = re.compile(r"\b(duplicate|corrupt|reorder|slot|gap|ecn)\b")

_FORMS = {
    "delay": _DELAY,
    "loss": _LOSS,
    "rate": _RATE,
    "limit": _LIMIT,
    "latency": _LATENCY,
}
"""The quantities of a command, each with its form."""

_JITTERS: dict[str | None, tuple[JitterDistribution, float]] = {
    None: ("uniform", 1 / math.sqrt(3)),
    "uniform": ("uniform", 1 / math.sqrt(3)),
    "normal": ("normal", 1.0),
    "pareto": ("pareto", 2 / math.sqrt(3)),
    "paretonormal": ("pareto", 1.0),
}
"""By netem's distribution, that of muster, and its standard deviation for a jitter of 1."""


class _Way(NamedTuple):
    """What commands say of one direction.

    Attributes:
        class_bps: the rate of its class; None: it has none, or one without a limit.
    """

    class_bps: float | None = None
    bps: float | None = None
    delay_s: float = 0.0
    queue_bytes: float | None = None
    jitter_s: float = 0.0
    distribution: str | None = None
    loss: float = 0.0
    run: float = 1.0

    @property
    def least_bps(self) -> float | None:
        """The rate of the whole; None: it has no limit."""
        return min(filter(None, (self.class_bps, self.bps)), default=None)


class _Command(NamedTuple):
    """A command about a queue, and the number of its line."""

    number: int
    line: str
    text: str


class _Interface:
    """The commands about an interface."""

    def __init__(self) -> None:
        self.classes = TcClasses()
        self._commands: list[_Command] = []

    def take(self, number: int, line: str) -> None:
        """Take a command.

        Raises:
            ValueError: it cannot be read.
        """
        text = _text_of(line)
        if _CLASS.search(text):
            self.classes.take(text)
        elif _QUEUE.search(text) and not _DELETES.search(text):
            self._commands.append(_Command(number, line, text))

    @property
    def leaves(self) -> Sequence[str | None]:
        """The classes that traffic passes; None stands for all traffic if there are none."""
        return self.classes.leaves or [None]

    def way(self, leaf: str | None, notes: list[str]) -> _Way:
        """What is said of the traffic of a class.

        Args:
            leaf: None: there are no classes.

        Raises:
            ValueError: a command cannot be read.
        """
        way = _Way()
        if leaf is not None:
            way = _Way(self.classes.bps(leaf))
            notes.append(self.classes.note(leaf))
        owners: dict[str, str | None] = {}  # of handles
        for number, line, text in self._commands:
            parent = found[1] if (found := _PARENT.search(text)) else ""
            owner = parent if parent in self.classes else owners.get(parent.partition(":")[0])
            if handle := _HANDLE.search(text):
                owners[handle[1]] = owner
            if owner in (None, leaf):
                with _placed(number, line):
                    way = _changed(way, text, notes)
        return way


def matches(content: bytes) -> bool:
    return re.search(rb"\b(netem|tbf|htb|hfsc)\b", content) is not None


def read(content: bytes) -> Sequence[ForeignLink]:
    interfaces = {"down": _Interface(), "up": _Interface()}
    for number, line in _commands(content.decode(errors="replace")):
        device = _DEVICE.search(_text_of(line))
        with _placed(number, line):
            interfaces["down" if device and device[1].startswith("ifb") else "up"].take(
                number, line
            )
    down, up = interfaces["down"].leaves, interfaces["up"].leaves
    if len(down) > 1 and len(up) > 1:
        if set(down) != set(up):
            raise ValueError(
                f"expected the same classes in both directions, found {listed(up)}, and "
                f"{listed(down)} of the ifb; leave out the lines of classes that the link does not "
                f"pass"
            )
        return [_link(interfaces, name, name) for name in up]
    return [_link(interfaces, *pair) for pair in product(down, up)]


def _link(
    interfaces: Mapping[str, _Interface], of_down: str | None, of_up: str | None
) -> ForeignLink:
    """The link that passes a class of each direction; None: it has none."""
    notes = ["delays are one way"]
    down, up = interfaces["down"].way(of_down, notes), interfaces["up"].way(of_up, notes)
    names = dict.fromkeys(filter(None, (of_down, of_up)))
    way = max(down, up, key=lambda each: each.jitter_s)
    jitter, deviation = _JITTERS[way.distribution]
    if way.distribution == "paretonormal":
        notes.append("paretonormal counts as pareto")
    loss, run = max((down.loss, down.run), (up.loss, up.run))
    return ForeignLink(
        name=" ".join(["tc", *(f"class {name}" for name in names)]),
        down_bps=down.least_bps,
        up_bps=up.least_bps,
        rtt_s=down.delay_s + up.delay_s,
        delays_s=(down.delay_s, up.delay_s),
        jitter_s=deviation * way.jitter_s,
        jitter_distribution=jitter if way.jitter_s else "late",
        loss=loss,
        loss_burst=run,
        queues_bytes=(down.queue_bytes, up.queue_bytes),
        note="; ".join(dict.fromkeys(notes)),
    )


def _text_of(line: str) -> str:
    """A command without its comment."""
    return _COMMENT.split(line.strip().lower())[0]


@contextmanager
def _placed(number: int, line: str) -> Iterator[None]:
    """Name the line of a mistake."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"line {number}: {error}; found {line.strip()[:60]!r}") from None


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield the commands with the numbers of their first lines: one may go on in the next line."""
    begun, at = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        at = at if begun else number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        yield at, begun + line
        begun = ""
    if begun:
        yield at, begun


def _require_read(text: str) -> None:
    """Refuse a quantity that cannot be read."""
    for key, form in _FORMS.items():
        if re.search(rf"\b{key}\b", text) and not form.search(text):
            raise not_read(key)


def _changed(way: _Way, text: str, notes: list[str]) -> _Way:
    """What is known of a direction after another command."""
    _require_read(text)
    if left_out := _LEFT_OUT.findall(text):
        notes.append(f"left out: {', '.join(dict.fromkeys(left_out))}")
    if found := _RATE.search(text):
        way = way._replace(bps=bps_of(found[1], found[2]))
    if found := _DELAY.search(text):
        delay_s = number_in(found[1]) * factor_of(found[2], _TIMES)
        before_s = 0.0 if _CHANGES.search(text) else way.delay_s
        way = _jittered(way._replace(delay_s=before_s + delay_s), found, text)
    if found := _LOSS.search(text):
        share, run, more = _losses((found[1] or "").strip(), found[2].split())
        share, run = max((way.loss, way.run), (share, run))
        way = way._replace(loss=share, run=run)
        notes += more
    limit = _LIMIT.search(text)
    if limit is not None and "netem" in text:
        # Packets that are only delayed count, too.
        delayed = (way.least_bps or 0.0) * way.delay_s / 8
        queue = max(_PACKET_BYTES, number_in(limit[1]) * _PACKET_BYTES - delayed)
        way = way._replace(queue_bytes=queue)
    elif limit is not None:
        way = way._replace(queue_bytes=number_in(limit[1]) * factor_of(limit[2], _SIZES))
    elif (found := _LATENCY.search(text)) is not None and way.bps is not None:
        latency_s = number_in(found[1]) * factor_of(found[2], _TIMES)
        way = way._replace(queue_bytes=way.bps * latency_s / 8)
    return way


def _jittered(way: _Way, delay: re.Match[str], text: str) -> _Way:
    """What is known of a direction after a delay that may have a jitter."""
    if not delay[3]:
        return way
    named = _DISTRIBUTION.search(text)
    distribution = named[1] if named else None
    if distribution not in _JITTERS:
        known = ", ".join(filter(None, _JITTERS))
        raise ValueError(f"expected a distribution of {known}")
    jitter_s = number_in(delay[3]) * factor_of(delay[4], _TIMES)
    return way._replace(jitter_s=max(way.jitter_s, jitter_s), distribution=distribution)


def _losses(kind: str, numbers: Sequence[str]) -> tuple[float, float, list[str]]:
    """The share of packets that are lost, how many in a row in the mean, and notes."""
    values = [min(1.0, number_in(number.rstrip("%")) / 100) for number in numbers]
    if kind not in ("gemodel", "state") or not values[0]:
        return values[0], 1.0, ["the correlation of losses is left out"] if values[1:] else []
    p, r = values[0], values[1] if values[1:] else 1 - values[0]
    bad, good, notes = 1.0, 0.0, list[str]()
    if kind == "gemodel":
        bad, good = (values[2:3] or [1.0])[0], (values[3:4] or [0.0])[0]
    elif values[2:]:
        notes.append("of the four states, p13 and p31 count")
    share = p / (p + r)
    return share * bad + (1 - share) * good, 1 / max(1e-3, 1 - (1 - r) * bad), notes
