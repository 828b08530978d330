"""Network conditions of Chrome. Those of DevTools, in its preferences and its protocol, and of
Puppeteer are in bytes per second, and milliseconds from a request to its reply; those of Lighthouse
in kbit/s and milliseconds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from muster.emulator.links.profiles.profile import (
    ForeignLink,
    json_of,
    named_tables_in,
    number_in,
)


class _Keys(NamedTuple):
    """The keys of one kind of conditions.

    Attributes:
        bits: of the rates' unit.
    """

    down: str
    up: str
    latency: str
    bits: float = 8.0


_KINDS = (
    _Keys("download", "upload", "latency"),
    _Keys("downloadThroughput", "uploadThroughput", "latency"),
    _Keys("throughputKbps", "uploadThroughputKbps", "rttMs", 1000.0),
)


def matches(content: bytes) -> bool:
    return any(True for _ in _found(content))


def read(content: bytes) -> Sequence[ForeignLink]:
    links: list[ForeignLink] = []
    for name, table, keys in _found(content):
        if table.get("offline") is True or table[keys.down] == table[keys.up] == 0:
            continue  # no network at all, which is a fault and no link
        down, up = (keys.bits * _rate(table, key) for key in (keys.down, keys.up))
        latency_s = number_in(table, keys.latency) / 1000
        loss = number_in(table, "packetLoss", 0) / 100
        title = str(table.get("title", name or f"link {len(links) + 1}"))
        links.append(ForeignLink(title, down or None, up or None, latency_s, loss=loss))
    return links


def _found(content: bytes) -> Iterator[tuple[str, Mapping[str, Any], _Keys]]:
    """Yield the tables of conditions, with the names under which they are. The preferences of
    Chrome have a text of JSON within JSON."""
    for name, table in named_tables_in(json_of(content)):
        yield from ((name, table, keys) for keys in _KINDS if table.keys() >= {*keys[:3]})
        for value in table.values():
            if isinstance(value, str) and value[:1] == "[" and '"download"' in value:
                yield from _found(value.encode())


def _rate(table: Mapping[str, Any], key: str) -> float:
    return 0.0 if table[key] == -1 else number_in(table, key)  # -1: no limit
