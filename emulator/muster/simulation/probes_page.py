"""The probes and how often they were reached, as a sentence and as a page."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from muster.simulation.observed import JOURNAL, LEDGER
from muster.simulation.probes import probes

_HEAD = (
    "# Probes\n\n"
    "In how many of {played:,} random histories each probe was reached\n"
    "([reliability.md](reliability.md#deterministic-simulation)). A history is a whole run of a\n"
    "drawn fleet with up to four faults. `make simulate PROBES=docs/probes.md` writes this page.\n"
)


def declared() -> Mapping[str, list[str]]:
    """The names of all probes, by where they are."""
    code = {f"`{module}`": list(named) for module, named in probes().items()}
    return {**code, "the ledger": list(LEDGER), "the journal": list(JOURNAL)}


def names() -> list[str]:
    """The names of all probes."""
    return [name for of_place in declared().values() for name in of_place]


def summary(times: Counter[str], of: Sequence[str]) -> str:
    """Which of these probes were reached, in a sentence."""
    missing = [name for name in of if not times[name]]
    more = f"; not reached: {'; '.join(missing)}" if missing else ""
    return f"{len(of) - len(missing)} of {len(of)} probes were reached{more}"


def page(times: Counter[str], played: int) -> str:
    """The page with the table of the probes."""
    return "".join(_lines(times, played))


def _lines(times: Counter[str], played: int) -> Iterator[str]:
    yield _HEAD.format(played=played)
    for place, of_place in declared().items():
        yield f"\n| {place} | histories |\n|---|---|\n"
        for name in of_place:
            yield f"| {name} | {times[name]:,} |\n"
