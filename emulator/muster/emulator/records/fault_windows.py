"""In which rounds the faults of a run were active, from its journal.

Everything that asks when a fault acted asks here: the summary, the report and the expectations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from muster.emulator.records.account import Account

APPLIED, HEALED, COMMITTED = "fault_applied", "fault_healed", "round_committed"


class FaultOccurrence(NamedTuple):
    """One time that a fault struck.

    Attributes:
        fault: the name of the fault.
        number: the number of the occurrence.
        first: the round that was open when it was applied.
        healed: the round in which it was healed; None if it lasted to the end of the run.
    """

    fault: str
    number: int
    first: int
    healed: int | None

    @property
    def last(self) -> int | None:
        """The round before the one in which it was healed, or `first` if it was the same."""
        return None if self.healed is None else max(self.first, self.healed - 1)


class FaultWindow(NamedTuple):
    """Rounds without a gap in which a fault was active.

    Attributes:
        fault: the name of the fault.
        last: None if it lasted to the end of the run.
    """

    fault: str
    first: int
    last: int | None


@dataclass
class _Open:
    """An occurrence that has not been healed yet."""

    first: int
    targets: set[str] = field(default_factory=set)


def occurrences_of(account: "Account") -> list[FaultOccurrence]:
    """All occurrences of the faults of a run, by their first rounds."""
    if not any(True for _ in account.events(APPLIED)):
        return []  # the commits of a long run without faults are not read
    return fault_occurrences(account.events(APPLIED, HEALED, COMMITTED))


def fault_occurrences(events: Iterable[Mapping[str, Any]]) -> list[FaultOccurrence]:
    """All occurrences of faults, by their first rounds.

    Args:
        events: the events of the journal, in their order: applied and healed faults, and committed
            rounds. Those of faults have the name of the `fault` and, where they are known, the
            `number` of the occurrence, its `targets` and the `round`. A heal without targets is one
            of all targets. A heal `with_run` does not end the occurrence unless the run goes on.
    """
    committed, found = 0, list[FaultOccurrence]()
    with_run = list[FaultOccurrence]()
    open: dict[tuple[str, int], _Open] = {}
    for event in events:
        if event.get("event") == COMMITTED:
            committed = max(committed, int(event["round"]))
            continue
        name, round = event.get("fault"), event.get("round")
        if not isinstance(name, str):
            continue  # torn
        here = round if isinstance(round, int) else committed + 1
        key = name, int(event.get("number") or 0)
        targets = set(map(str, event.get("targets") or ()))
        if event.get("event") == APPLIED:
            open.setdefault(key, _Open(here)).targets.update(targets)
        elif key in open:
            occurrence = open[key]
            occurrence.targets -= targets or set(occurrence.targets)
            if not occurrence.targets:
                if event.get("with_run"):
                    with_run.append(FaultOccurrence(*key, occurrence.first, committed + 1))
                else:
                    found.append(FaultOccurrence(*key, occurrence.first, here))
                del open[key]
    found += [FaultOccurrence(*key, each.first, None) for key, each in open.items()]
    for each in with_run:
        resumed = each.healed is not None and each.healed <= committed
        found.append(each if resumed else each._replace(healed=None))
    return sorted(found, key=lambda each: (each.first, each.fault, each.number))


def fault_windows(occurrences: Sequence[FaultOccurrence]) -> list[FaultWindow]:
    """The windows of all faults, by their first rounds. Occurrences of a fault that overlap, for
    example because it strikes several devices one after the other, have one window."""
    found: list[FaultWindow] = []
    newest: dict[str, int] = {}
    for each in occurrences:
        place = newest.get(each.fault)
        before = None if place is None else found[place]
        if place is None or before is None or (before.last or each.first) < each.first:
            newest[each.fault] = len(found)
            found.append(FaultWindow(each.fault, each.first, each.last))
            continue
        ends = before.last, each.last
        last = None if None in ends else max(end for end in ends if end is not None)
        found[place] = FaultWindow(each.fault, before.first, last)
    return found
