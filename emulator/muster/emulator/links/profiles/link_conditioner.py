"""Profiles of Apple's Network Link Conditioner: property lists with rates, delays one way in ms,
and losses in %. Unit 0 of a rate is kbit/s, and 1 is Mbit/s."""

import plistlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.parsers.expat import ExpatError

from muster.emulator.links.profiles.profile import ForeignLink, named_tables_in, number_in

_UNITS = (1e3, 1e6)
_BROKEN = plistlib.InvalidFileException, ExpatError


def matches(content: bytes) -> bool:
    return b"DownlinkBandwidth" in content


def read(content: bytes) -> Sequence[ForeignLink]:
    try:
        found = plistlib.loads(content)
    except (*_BROKEN, ValueError, TypeError, LookupError) as error:
        raise ValueError(f"expected a property list, found {error}") from None
    links = []
    for name, table in _named(found):
        rates = [number_in(table, f"{way}Bandwidth", 0) * _unit(table, way) for way in _WAYS]
        delays_s = [number_in(table, f"{way}Delay", 0) / 1000 for way in _WAYS]
        losses = [number_in(table, f"{way}PacketLossRatio", 0) / 100 for way in _WAYS]
        links.append(
            ForeignLink(
                name,
                rates[0] or None,
                rates[1] or None,
                sum(delays_s),
                delays_s=(delays_s[0], delays_s[1]),
                loss=max(losses),
                losses=(losses[0], losses[1]),
            )
        )
    return links


_WAYS = ("Downlink", "Uplink")


def _named(found: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The profiles with their names: the keys under which they are, or their own."""
    for number, (key, table) in enumerate(named_tables_in(found), start=1):
        if "DownlinkBandwidth" in table:
            yield str(table.get("Name", key or f"profile {number}")), table


def _unit(table: Mapping[str, Any], way: str) -> float:
    return _UNITS[bool(table.get(f"{way}BandwidthUnit"))]
