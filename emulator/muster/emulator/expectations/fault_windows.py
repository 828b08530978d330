"""The windows of the faults of a run: in which rounds each fault had targets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

APPLIED, HEALED = "fault_applied", "fault_healed"
"""The events of the journal at which a window begins and ends."""


@dataclass(frozen=True)
class FaultWindow:
    """The rounds in which a fault was active.

    Attributes:
        name: the name of the fault.
        first: the round in which it was applied.
        last: the round in which it was healed; None if it never was.
    """

    name: str
    first: int
    last: int | None


def fault_windows(events: Iterable[Mapping[str, Any]]) -> list[FaultWindow]:
    """Return the windows of all faults, by their first rounds.

    A fault that is applied again before it has been healed, for example to other targets, has one
    window: it begins with the first target and ends when the last target has been healed. An event
    without targets is about all of them.

    Args:
        events: the events of the journal with the names `APPLIED` and `HEALED`, in their order.
            Each has `name`, `targets` and `round`. Events without them are skipped.
    """
    windows: list[FaultWindow] = []
    begun: dict[str, int] = {}
    targets: dict[str, set[str]] = {}
    for event in events:
        name, round = event.get("name"), event.get("round")
        if not isinstance(name, str) or not isinstance(round, int):
            continue
        struck = event.get("targets")
        named = set(map(str, struck)) if isinstance(struck, list) else set()
        if event.get("event") == APPLIED:
            begun.setdefault(name, round)
            targets.setdefault(name, set()).update(named)
        elif event.get("event") == HEALED and name in begun:
            targets[name] -= named or set(targets[name])
            if not targets[name]:
                windows.append(FaultWindow(name, begun.pop(name), round))
                del targets[name]
    windows += [FaultWindow(name, first, None) for name, first in begun.items()]
    return sorted(windows, key=lambda window: (window.first, window.name))
