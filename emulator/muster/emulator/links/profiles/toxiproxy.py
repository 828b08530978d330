"""Proxies of Toxiproxy with their toxics, as its HTTP API lists them: `latency` in ms one way, and
`bandwidth` in kB/s for each connection, downstream unless they say otherwise."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from muster.emulator.links.profiles.profile import ForeignLink, json_of, number_in, tables_in


def matches(content: bytes) -> bool:
    return any(isinstance(table.get("toxics"), list) for table in tables_in(json_of(content)))


def read(content: bytes) -> Sequence[ForeignLink]:
    return [
        _link(table)
        for table in tables_in(json_of(content))
        if isinstance(table.get("toxics"), list)
    ]


def _link(proxy: Mapping[str, Any]) -> ForeignLink:
    name, rates, jitter_s, left_out = str(proxy.get("name", "proxy")), {}, 0.0, []
    delays_s = {"down": 0.0, "up": 0.0}
    for toxic in proxy["toxics"]:
        if not isinstance(toxic, Mapping) or not isinstance(toxic.get("attributes"), Mapping):
            raise ValueError(f"{name}: expected toxics with attributes, found {toxic!r:.60}")
        attributes, kind = toxic["attributes"], toxic.get("type")
        if (toxicity := number_in(toxic, "toxicity", 1)) < 1:
            left_out.append(f"{kind} of {toxicity:.0%} of the connections")
            continue
        way = "up" if toxic.get("stream") == "upstream" else "down"
        if kind == "latency":
            delays_s[way] += number_in(attributes, "latency", 0) / 1000
            jitter_s = max(jitter_s, number_in(attributes, "jitter", 0) / 1000)
        elif kind == "bandwidth":
            rates[way] = 8000 * number_in(attributes, "rate")
        else:
            left_out.append(str(kind))
    note = "the rate is that of the device, and not of each connection" if rates else ""
    if left_out:
        note = "; ".join(filter(None, [note, f"left out, see faults: {', '.join(left_out)}"]))
    return ForeignLink(
        name,
        rates.get("down"),
        rates.get("up"),
        sum(delays_s.values()),
        jitter_s / math.sqrt(3),  # Toxiproxy's jitter is uniform
        note=note,
        delays_s=(delays_s["down"], delays_s["up"]),
        jitter_distribution="uniform",
    )
