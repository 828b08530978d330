"""Reads profiles of links in any format that muster knows, found by their content."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from muster.common.recorded_lines import content_of
from muster.common.units import RATES
from muster.emulator.links.profiles import (
    devtools,
    link_conditioner,
    netem,
    toxiproxy,
    webpagetest,
)
from muster.emulator.links.profiles.profile import ForeignLink
from muster.emulator.links.settings import DELAY, RATE

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
                _require_text(content)
                found: Sequence[ForeignLink] = reader.read(content)
                for link in found:
                    _require_possible(link)
            except ValueError as error:
                raise ValueError(f"{path}: {error}; correct it") from None
            if not found:
                raise ValueError(f"{path} has no links; expected profiles of {name}")
            return found
    if _JSON.match(content):
        _refuse_json(path, content)
    return ()


_JSON = re.compile(rb"\s*(\{|\[\s*[\[{])")


def _refuse_json(path: Path, content: bytes) -> NoReturn:
    """Refuse a JSON file in which no link was found."""
    try:
        json.loads(content)
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, found {error}; copy the whole file") from None
    raise ValueError(
        f"{path} is JSON without links that muster knows; expected the network conditions of "
        f"DevTools, Puppeteer or Lighthouse, or proxies of Toxiproxy with toxics"
    )


def _require_text(content: bytes) -> None:
    if b"\0" in content and not content.startswith(b"bplist"):
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise ValueError(f"line {line}: expected text, found a byte 0")


def _require_possible(link: ForeignLink) -> None:
    """Check that a scenario can have the rates and delays of a link; otherwise a unit is wrong."""
    for key, bps in (("down", link.down_bps), ("up", link.up_bps)):
        if bps is not None and not RATE.least <= bps <= RATE.most:
            raise ValueError(
                f"{link.name}: expected a rate {key} from {RATES.text(RATE.least)} to "
                f"{RATES.text(RATE.most)}, found {bps:.3g} bit/s"
            )
    for delay_s in (link.rtt_s, link.jitter_s):
        if delay_s > DELAY.most:
            raise ValueError(
                f"{link.name}: expected delays of at most {DELAY.most:g} s, found {delay_s:.3g} s"
            )
