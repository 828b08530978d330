"""Reads profiles of links in any format that muster knows, found by their content."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from muster.common.recorded_lines import content_of
from muster.emulator.links.profiles import (
    devtools,
    link_conditioner,
    netem,
    toxiproxy,
    webpagetest,
)
from muster.emulator.links.profiles.profile import ForeignLink

PROFILES: Mapping[str, ModuleType] = {
    "webpagetest": webpagetest,
    "link-conditioner": link_conditioner,
    "netem": netem,
    "toxiproxy": toxiproxy,
    "devtools": devtools,
}


def read_profiles(path: Path, format: str | None = None) -> Sequence[ForeignLink]:
    """The links of a file of profiles; empty if it is none.

    Args:
        format: a key of PROFILES; None: found by the content.

    Raises:
        ValueError: the file cannot be read, or has a mistake.
    """
    content = content_of(path)
    for name, reader in PROFILES.items():
        if name == format or (format is None and reader.matches(content)):
            try:
                found: Sequence[ForeignLink] = reader.read(content)
            except ValueError as error:
                raise ValueError(f"{path}: {error}; correct it") from None
            if not found:
                raise ValueError(f"{path} has no links; expected profiles of {name}")
            return found
    return ()
