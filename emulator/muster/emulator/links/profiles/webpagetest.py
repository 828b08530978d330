"""WebPageTest's `connectivity.ini`: rates in bit/s, a round trip in ms, losses in %."""

import configparser
from collections.abc import Sequence

from muster.emulator.links.profiles.profile import ForeignLink, number_in


def matches(content: bytes) -> bool:
    return b"bwIn" in content and b"[" in content


def read(content: bytes) -> Sequence[ForeignLink]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(content.decode(errors="replace"))
    except configparser.Error as error:
        raise ValueError(" ".join(str(error).split())) from None
    return [_link(name, parser[name]) for name in parser.sections()]


def _link(name: str, section: configparser.SectionProxy) -> ForeignLink:
    try:
        return ForeignLink(
            section.get("label", name).strip('"'),
            number_in(section, "bwin") or None,
            number_in(section, "bwout") or None,
            number_in(section, "latency", 0) / 1000,
            loss=number_in(section, "plr", 0) / 100,
        )
    except ValueError as error:
        raise ValueError(f"[{name}]: {error}") from None
