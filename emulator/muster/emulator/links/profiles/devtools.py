"""Network conditions of Chrome's DevTools, as in its preferences, Puppeteer and Lighthouse: bytes
per second, and milliseconds from a request to its reply."""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.emulator.links.profiles.profile import ForeignLink, json_of, number_in, tables_in

_KEYS = {"download", "upload", "latency"}


def matches(content: bytes) -> bool:
    return any(table.keys() >= _KEYS for table in tables_in(json_of(content)))


def read(content: bytes) -> Sequence[ForeignLink]:
    links: list[ForeignLink] = []
    for table in tables_in(json_of(content)):
        if table.keys() >= _KEYS:
            down, up = (max(0.0, _rate(table, key)) for key in ("download", "upload"))
            latency_s = number_in(table, "latency") / 1000
            loss = number_in(table, "packetLoss", 0) / 100
            name = str(table.get("title", f"link {len(links) + 1}"))
            links.append(ForeignLink(name, 8 * down or None, 8 * up or None, latency_s, loss=loss))
    return links


def _rate(table: Mapping[str, Any], key: str) -> float:
    return -1.0 if table[key] == -1 else number_in(table, key)  # -1: no limit
