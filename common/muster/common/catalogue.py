"""Catalogues: presets by name, each with the source, year and licence of its numbers.

[sources.atc]
what = "Augmented Traffic Control of Facebook, utils/profiles"
year = 2015
licence = "BSD-3-Clause"

[presets.2g-rural]
down = "20 kbit/s"
rtt = "1300 ms"
jitter = "50 ms"
source = "atc"
assumed = ["jitter"]            # settings without a source
others = { rtt = "mahimahi" }   # settings with another source
about = "in a village"          # for people
like = "2g"                     # another preset, whose values it takes for what it has not
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_ABOUT = ("source", "assumed", "others", "about", "like")

ASSUMPTION = "assumption"
"""The source of a preset that has none."""


class NumberSource(NamedTuple):
    """Where numbers come from."""

    what: str
    year: int | None = None
    licence: str | None = None

    def __str__(self) -> str:
        details = [str(detail) for detail in (self.year, self.licence) if detail is not None]
        return f"{self.what} ({'; '.join(details)})" if details else self.what


class Preset(NamedTuple):
    """A preset.

    Attributes:
        values: its settings as a scenario has them.
        source: where they come from.
        assumed: the keys of those that are assumptions.
        others: the sources of those that come from elsewhere, by key.
        about: what it is, in words; may be empty.
        base: the name of the preset that it varies, or its own.
    """

    values: Mapping[str, Any]
    source: NumberSource
    assumed: Sequence[str]
    others: Mapping[str, NumberSource]
    about: str
    base: str

    @property
    def provenance(self) -> str:
        """Where the numbers come from, on one line."""
        parts = [str(self.source)]
        parts += [f"{key}: {source}" for key, source in self.others.items()]
        if self.assumed:
            parts.append(f"{ASSUMPTION}: {', '.join(self.assumed)}")
        return "; ".join(parts)


def read_catalogue(path: Path) -> Mapping[str, Preset]:
    """The presets of a catalogue of this package, in its order."""
    with path.open("rb") as file:
        tables = tomllib.load(file)
    sources = {name: NumberSource(**table) for name, table in tables["sources"].items()}
    sources[ASSUMPTION] = NumberSource(ASSUMPTION)
    found: dict[str, Preset] = {}
    for name, table in tables["presets"].items():
        like = table.get("like", name)
        values = {key: value for key, value in table.items() if key not in _ABOUT}
        found[name] = Preset(
            values if like == name else {**found[like].values, **values},
            sources[table["source"]],
            table.get("assumed", []),
            {key: sources[source] for key, source in table.get("others", {}).items()},
            table.get("about", ""),
            found[like].base if like != name else name,
        )
    return found


def require_known(name: str, known: Sequence[str], kind: str) -> str:
    """The name of a preset.

    Args:
        kind: the list of `muster list` that has all of them.

    Raises:
        ValueError: there is no such preset.
    """
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"there is no {name!r}{meant}; `muster list {kind}` shows all that there are")
