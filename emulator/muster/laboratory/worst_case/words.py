"""Says what a schedule is."""

from collections.abc import Collection, Iterator, Sequence

from muster.laboratory.worst_case.schedule import Cell, FaultlessRun, FaultSchedule

_MOST = 4
"""The most single devices that are named."""


def in_words(course: FaultlessRun, found: FaultSchedule) -> str:
    """A schedule in words, for example `without group a from round 3 to 9`."""
    left = set(found.cells)
    said = []
    kinds = [("group", course.groups), ("the devices with class", course.classes)]
    for kind, sets in kinds:
        for name, members in sets.items():
            if interval := _interval(course, left, members):
                said.append(f"{kind} {name} {_rounds([interval])}")
                left -= {cell for cell in left if cell[1] in members}
    said += _devices(course, left)
    if not said:
        return "nothing"
    if found.delay:
        plural = "s" if found.delay > 1 else ""
        return f"late by {found.delay} round{plural}: {', '.join(said)}"
    return f"without {', '.join(said)}"


def _interval(
    course: FaultlessRun, cells: Collection[Cell], members: Sequence[str]
) -> tuple[int, int] | None:
    """The rounds from the first to the last in which all calls of a set of devices are struck."""
    there, of_set = frozenset(members), frozenset(cells)
    rounds = [number for number, client in cells if client in there]
    if not rounds or len({client for _, client in cells if client in there}) < len(there):
        return None
    first, last = min(rounds), max(rounds)
    of_course = {c for c in course.cells if c[1] in there and first <= c[0] <= last}
    return (first, last) if of_course <= of_set else None


def _devices(course: FaultlessRun, cells: Collection[Cell]) -> Iterator[str]:
    """Say of single devices in which rounds they are struck."""
    struck: dict[str, list[tuple[int, int]]] = {}
    for client in course.clients:
        own = [number for number, name in course.cells if name == client]
        gone = {number for number, name in cells if name == client}
        runs: list[tuple[int, int]] = []
        before = False
        for number in own:
            if number in gone:
                runs = [*runs[:-1], (runs[-1][0], number)] if before else [*runs, (number, number)]
            before = number in gone
        if runs:
            struck[client] = runs
    shown = sorted(struck, key=lambda client: len(struck[client]))[:_MOST]
    for client in shown:
        yield f"{client} {_rounds(struck[client])}"
    if more := len(struck) - len(shown):
        calls = sum(client not in shown for _, client in cells)
        yield f"{calls} calls of {more} other devices"


def _rounds(runs: Sequence[tuple[int, int]]) -> str:
    if len(runs) > 6:
        return f"in {sum(last - first + 1 for first, last in runs)} rounds"
    if len(runs) == 1:
        first, last = runs[0]
        return f"in round {first}" if first == last else f"from round {first} to {last}"
    return "in rounds " + ", ".join(
        str(first) if first == last else f"{first}–{last}" for first, last in runs
    )
