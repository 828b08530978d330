"""The injections that have not begun, found by what begins them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from muster.emulator.faults.injection import InjectedFault
from muster.emulator.fleet.fault_timeline import FaultTimeline, Occurrence


class PlannedInjection(NamedTuple):
    """One occurrence of a fault that the supervisor injects."""

    fault: str
    do: InjectedFault
    occurrence: Occurrence


def planned_injections(timeline: FaultTimeline) -> list[PlannedInjection]:
    """The occurrences of all faults of a timeline that the supervisor injects."""
    return [
        PlannedInjection(fault.name, fault.do, occurrence)
        for fault in timeline.faults
        if isinstance(fault.do, InjectedFault)
        for occurrence in fault.occurrences
    ]


class WaitingInjections:
    """Injections that wait for an event, a round, or a scenario time. A look costs what it finds,
    however many of them wait."""

    def __init__(self, planned: Iterable[PlannedInjection]) -> None:
        self._by_event = defaultdict[tuple[str, int | None], list[PlannedInjection]](list)
        self._by_round: list[PlannedInjection] = []
        self._by_time: list[PlannedInjection] = []
        for each in planned:
            occurrence = each.occurrence
            if occurrence.event is not None:
                self._by_event[occurrence.event, occurrence.first_round].append(each)
            elif occurrence.first_round is not None:
                self._by_round.append(each)
            else:
                self._by_time.append(each)
        for waiting, begin in (self._by_round, _first_round), (self._by_time, _begin_s):
            waiting.sort(key=begin)
            waiting.reverse()  # the next one last

    def take_at(self, line: Mapping[str, Any]) -> list[PlannedInjection]:
        """Take those that a line of the journal begins."""
        event, round = line["event"], line.get("round")
        keys = [(event, None), (event, round)] if round is not None else [(event, None)]
        found = [each for key in keys for each in self._by_event.pop(key, ())]
        if event == "round_opened":
            found += self._take_until_round(line["round"])
        return found

    def _take_until_round(self, round: int) -> list[PlannedInjection]:
        """Take those that begin with this round or before. Rounds pass unseen if the supervisor was
        killed before it had read of them. What would have ended meanwhile does not begin."""
        found = []
        while self._by_round and _first_round(self._by_round[-1]) <= round:
            each = self._by_round.pop()
            if (each.occurrence.end_round or math.inf) > round:
                found.append(each)
        return found

    def take_until(self, scenario_s: float) -> list[PlannedInjection]:
        """Take those that begin at this scenario time or before."""
        found = []
        while self._by_time and _begin_s(self._by_time[-1]) <= scenario_s:
            found.append(self._by_time.pop())
        return found

    @property
    def next_s(self) -> float | None:
        """The scenario time at which the next one begins, of those that begin at a time."""
        return _begin_s(self._by_time[-1]) if self._by_time else None


def _first_round(planned: PlannedInjection) -> int:
    first_round = planned.occurrence.first_round
    assert first_round is not None
    return first_round


def _begin_s(planned: PlannedInjection) -> float:
    begin_s = planned.occurrence.begin_s
    assert begin_s is not None
    return begin_s
