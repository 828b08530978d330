"""Commands of `tc` with netem or tbf. What leaves an interface is the way up, and what leaves an
`ifb`, to which arriving packets are redirected, the way down.

The meaning of numbers is that of `tc-netem(8)` and of `net/sched/sch_netem.c`: jitter is uniform
unless a distribution is named.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from muster.common.jitter import JitterDistribution
from muster.emulator.links.profiles.profile import ForeignLink

_TIMES = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "": 1e-6}
_RATES = {
    f"{prefix}{unit}": factor * bits
    for prefix, factor in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9))
    for unit, bits in (("bit", 1.0), ("bps", 8.0))
}
_SIZES = {"b": 1.0, "": 1.0, "k": 1024.0, "kb": 1024.0, "m": 1024.0**2, "mb": 1024.0**2}
_PACKET_BYTES = 1500

_NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
_DELAY = re.compile(rf"\bdelay\s+{_NUMBER}([a-z]*)(?:\s+{_NUMBER}([a-z]+)(?=\s|$))?")
_DISTRIBUTION = re.compile(r"\bdistribution\s+(\w+)")
_LOSS = re.compile(rf"\bloss\s+(random\s+|gemodel\s+|state\s+)?((?:{_NUMBER}%?\s*)+)")
_RATE = re.compile(rf"\brate\s+{_NUMBER}([a-z]+)")
_LIMIT = re.compile(rf"\blimit\s+{_NUMBER}([a-z]*)")
_LATENCY = re.compile(rf"\blatency\s+{_NUMBER}([a-z]*)")
_DEVICE = re.compile(r"\bdev\s+(\S+)")
_COMMENT = re.compile(r"(?:^|\s)#")
_DELETES = re.compile(r"\bqdisc\s+del(ete)?\b")
_CHANGES = re.compile(r"\bqdisc\s+(change|replace)\b")
_CLASSES = re.compile(r"\b(htb|hfsc)\b.*\b(rate|ls|ul|sc)\b")
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
    """What commands say of one direction."""

    bps: float | None = None
    delay_s: float = 0.0
    queue_bytes: float | None = None


def matches(content: bytes) -> bool:
    return re.search(rb"\b(netem|tbf)\b", content) is not None


def read(content: bytes) -> Sequence[ForeignLink]:
    ways = {"down": _Way(), "up": _Way()}
    jitter_s, distribution, loss, run = 0.0, None, 0.0, 1.0
    notes = ["delays are one way"]
    for number, line in _commands(content.decode(errors="replace")):
        text = _COMMENT.split(line.strip().lower())[0]
        if _DELETES.search(text):
            continue
        if _CLASSES.search(text):
            notes.append("the rates of classes (htb, hfsc) are left out: give them as up or down")
        if not re.search(r"\b(netem|tbf)\b", text):
            continue
        device = _DEVICE.search(text)
        way = "down" if device and device[1].startswith("ifb") else "up"
        try:
            _require_read(text)
            if left_out := _LEFT_OUT.findall(text):
                notes.append(f"left out: {', '.join(dict.fromkeys(left_out))}")
            ways[way] = _changed(ways[way], text)
            if (found := _DELAY.search(text)) and found[3]:
                jitter_s = max(jitter_s, _number(found[3]) * _factor(found[4], _TIMES))
                named = _DISTRIBUTION.search(text)
                distribution = named[1] if named else None
                if distribution not in _JITTERS:
                    known = ", ".join(filter(None, _JITTERS))
                    raise ValueError(f"expected a distribution of {known}")
            if (found := _LOSS.search(text)) is not None:
                of_line = _losses((found[1] or "").strip(), found[2].split())
                loss, run = max((loss, run), of_line[:2])
                notes += of_line[2]
        except ValueError as error:
            raise ValueError(f"line {number}: {error}; found {line.strip()[:60]!r}") from None
    jitter, deviation = _JITTERS[distribution]
    if distribution == "paretonormal":
        notes.append("paretonormal counts as pareto")
    down, up = ways["down"], ways["up"]
    link = ForeignLink(
        name="tc",
        down_bps=down.bps,
        up_bps=up.bps,
        rtt_s=down.delay_s + up.delay_s,
        delays_s=(down.delay_s, up.delay_s),
        jitter_s=deviation * jitter_s,
        jitter_distribution=jitter if jitter_s else "late",
        loss=loss,
        loss_burst=run,
        queues_bytes=(down.queue_bytes, up.queue_bytes),
        note="; ".join(dict.fromkeys(notes)),
    )
    return [link]


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
    """Refuse a quantity that cannot be read, such as a variable of a shell."""
    for key, form in _FORMS.items():
        if re.search(rf"\b{key}\b", text) and not form.search(text):
            raise ValueError(
                f"expected a number after {key!r}; variables are not read: give the commands with "
                f"their values, or what `tc qdisc show` prints"
            )


def _changed(way: _Way, text: str) -> _Way:
    """What is known of a direction after another command."""
    if found := _RATE.search(text):
        way = way._replace(bps=_number(found[1]) * _factor(found[2], _RATES))
    if found := _DELAY.search(text):
        delay_s = _number(found[1]) * _factor(found[2], _TIMES)
        before_s = 0.0 if _CHANGES.search(text) else way.delay_s
        way = way._replace(delay_s=before_s + delay_s)
    limit = _LIMIT.search(text)
    if limit is not None and "netem" in text:
        # Packets that are only delayed count, too.
        delayed = (way.bps or 0.0) * way.delay_s / 8
        queue = max(_PACKET_BYTES, _number(limit[1]) * _PACKET_BYTES - delayed)
        way = way._replace(queue_bytes=queue)
    elif limit is not None:
        way = way._replace(queue_bytes=_number(limit[1]) * _factor(limit[2], _SIZES))
    elif (found := _LATENCY.search(text)) is not None and way.bps is not None:
        latency_s = _number(found[1]) * _factor(found[2], _TIMES)
        way = way._replace(queue_bytes=way.bps * latency_s / 8)
    return way


def _losses(kind: str, numbers: Sequence[str]) -> tuple[float, float, list[str]]:
    """The share of packets that are lost, how many in a row in the mean, and notes."""
    values = [min(1.0, _number(number.rstrip("%")) / 100) for number in numbers]
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


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"expected a finite number, found {text!r}")
    return number


def _factor(unit: str, units: dict[str, float]) -> float:
    if unit not in units:
        raise ValueError(f"expected a unit of {', '.join(filter(None, units))}, found {unit!r}")
    return units[unit]
