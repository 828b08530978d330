"""The windows of the faults of a run: in which rounds each fault was active."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

APPLIED, HEALED = "fault_applied", "fault_healed"
COMMITTED = "round_committed"
EVENTS = (APPLIED, HEALED, COMMITTED, "ended", "server_started")
"""The events of the journal from which windows follow."""


@dataclass(frozen=True)
class FaultWindow:
    """The rounds in which a fault was active.

    Attributes:
        name: the name of the fault.
        first: the round that was open when it was applied.
        last: the round before the one in which it was healed, or `first` if it was the same; None
            if it was never healed before the run ended.
    """

    name: str
    first: int
    last: int | None


@dataclass
class _Occurrence:
    """One occurrence of a fault that has not been healed yet."""

    first: int
    targets: set[str] = field(default_factory=set)


def fault_windows(events: Iterable[Mapping[str, Any]]) -> list[FaultWindow]:
    """Return the windows of all faults, by their first rounds.

    The round in which a fault is healed is the first one after it. If occurrences of a fault
    overlap, for example because it strikes several devices one after the other, they have one
    window.

    Args:
        events: the events `EVENTS` of the journal, in their order. Those of faults have the name of
            the fault, `fault`, and, where they are known, the `number` of the occurrence, its
            `targets` and the `round`. A heal without targets is one of all targets.
    """
    committed, ended, windows = 0, False, list[FaultWindow]()
    open: dict[tuple[str, int], _Occurrence] = {}
    for event in events:
        if event.get("event") == COMMITTED:
            committed = max(committed, int(event["round"]))
            continue
        if event.get("event") in ("ended", "server_started"):
            ended = event["event"] == "ended"
            continue
        name = event.get("fault")
        if not isinstance(name, str):
            continue  # torn
        key = name, int(event.get("number") or 0)
        targets = set(map(str, event.get("targets") or ()))
        if event.get("event") == APPLIED:
            round = event.get("round")
            first = round if isinstance(round, int) else committed + 1
            open.setdefault(key, _Occurrence(first)).targets.update(targets)
        elif key in open and not ended:  # with the run, every fault ends
            occurrence = open[key]
            occurrence.targets -= targets or set(occurrence.targets)
            if not occurrence.targets:
                healed = event.get("round")
                last = healed - 1 if isinstance(healed, int) else committed
                windows.append(FaultWindow(name, occurrence.first, max(occurrence.first, last)))
                del open[key]
    windows += [FaultWindow(name, each.first, None) for (name, _), each in open.items()]
    return _merged(windows)


def _merged(windows: Iterable[FaultWindow]) -> list[FaultWindow]:
    """Join the windows of a fault that have rounds in common."""
    found: list[FaultWindow] = []
    newest: dict[str, int] = {}
    for window in sorted(windows, key=lambda window: (window.first, window.name)):
        place = newest.get(window.name)
        before = None if place is None else found[place]
        if place is None or before is None or (before.last or window.first) < window.first:
            newest[window.name] = len(found)
            found.append(window)
            continue
        ends = before.last, window.last
        last = None if None in ends else max(end for end in ends if end is not None)
        found[place] = FaultWindow(window.name, before.first, last)
    return found
