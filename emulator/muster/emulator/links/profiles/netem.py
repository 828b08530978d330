"""Commands of `tc` with netem or tbf. What leaves an interface is the way up, and what leaves an
`ifb`, to which arriving packets are redirected, the way down."""

import re
from collections.abc import Sequence

from muster.emulator.links.profiles.profile import ForeignLink

_TIMES = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "": 1e-6}
_RATES = {
    f"{prefix}{unit}": factor * bits
    for prefix, factor in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9))
    for unit, bits in (("bit", 1.0), ("bps", 8.0))
}
_NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"
_DELAY = re.compile(rf"\bdelay\s+{_NUMBER}([a-z]*)(?:\s+{_NUMBER}([a-z]+)(?=\s|$))?")
_LOSS = re.compile(rf"\bloss\s+(?:random\s+)?{_NUMBER}%")
_RATE = re.compile(rf"\brate\s+{_NUMBER}([a-z]+)")
_DEVICE = re.compile(r"\bdev\s+(\S+)")


def matches(content: bytes) -> bool:
    return re.search(rb"\b(netem|tbf)\b", content) is not None


def read(content: bytes) -> Sequence[ForeignLink]:
    rates: dict[str, float] = {}
    delay_s = jitter_s = loss = 0.0
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        text = line.strip().lower()
        if not re.search(r"\b(netem|tbf)\b", text) or text.startswith("#"):
            continue
        try:
            device = _DEVICE.search(text)
            way = "down" if device and device[1].startswith("ifb") else "up"
            if found := _RATE.search(text):
                rates[way] = float(found[1]) * _factor(found[2], _RATES)
            if found := _DELAY.search(text):
                delay_s += float(found[1]) * _factor(found[2], _TIMES)
                if found[3]:
                    jitter_s = max(jitter_s, float(found[3]) * _factor(found[4], _TIMES))
            if found := _LOSS.search(text):
                loss = max(loss, float(found[1]) / 100)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}; found {line.strip()[:60]!r}") from None
    note = "netem delays one way; the round trip is the sum of the delays of all lines"
    return [ForeignLink("tc", rates.get("down"), rates.get("up"), delay_s, jitter_s, loss, note)]


def _factor(unit: str, units: dict[str, float]) -> float:
    if unit not in units:
        raise ValueError(f"expected a unit of {', '.join(filter(None, units))}, found {unit!r}")
    return units[unit]
