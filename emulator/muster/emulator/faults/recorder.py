"""Records what becomes of the faults that act inside devices: applied, observed, healed, verified.

The recorder follows the journal. A round that opens in a fault's window applies it; the ledger's
rows of a committed round show whether it was observed; the first round after the window heals it;
and it is verified when every target on which it was observed has been seen without its effect. The
recorder has no clock, so a run and its simulation record the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from muster.client.faults.scheduled import Window
from muster.common.events import Event
from muster.common.fault_events import (
    FaultApplied,
    FaultHealed,
    FaultObserved,
    FaultPlanned,
    FaultVerified,
)
from muster.common.faults import LedgerTrace, TracedFault
from muster.emulator.faults.device_faults import window_of
from muster.emulator.faults.timeline import FaultTimeline, Occurrence, RunTime, step_at

Line = Mapping[str, Any]
"""A line of the journal."""


class Traces(Protocol):
    """Reads traces of faults from the ledger."""

    def of_round(self, round: int) -> Mapping[str, LedgerTrace]:
        """The traces of all devices that have any in a committed round, by client."""
        ...

    def usual_s(self, clients: Sequence[str], before: int) -> Mapping[str, float]:
        """The median of each device's modelled seconds in the rounds before `before`."""
        ...


@dataclass(slots=True)
class _Course:
    """The course of one occurrence of a fault."""

    name: str
    do: TracedFault
    occurrence: Occurrence
    window: Window
    healed: bool = False
    observed: dict[str, LedgerTrace] = field(default_factory=dict)
    unseen: dict[str, LedgerTrace] = field(default_factory=dict)
    clean: set[str] = field(default_factory=set)
    usual: Mapping[str, float] | None = None
    done: bool = False

    @property
    def complete(self) -> bool:
        """Whether the fault was observed on all its targets."""
        return len(self.observed) == len(self.occurrence.targets)


class FaultRecorder:
    """Follows the journal of a run, and yields the events of its faults.

    Args:
        recorded: (event, fault, number) of the events that the journal has already; they are not
            yielded again. A run that is resumed has some.
    """

    def __init__(
        self,
        timeline: FaultTimeline,
        time: RunTime,
        traces: Traces,
        recorded: set[tuple[str, str, int]] | None = None,
    ) -> None:
        self._timeline = timeline
        self._time = time
        self._traces = traces
        self._recorded = recorded or set()
        self._round: int | None = None
        self._opened: dict[int, tuple[float | None, int]] = {}
        courses = [
            _Course(fault.name, fault.do, occurrence, window_of(occurrence, time))
            for fault in timeline.faults
            if isinstance(fault.do, TracedFault)
            for occurrence in fault.occurrences
        ]
        # Those that begin later, the next one last; and those that have begun and are not done.
        self._later = {
            unit: sorted(
                (course for course in reversed(courses) if course.window.unit == unit),
                key=lambda course: -course.window.first,
            )
            for unit in ("round", "step")
        }
        self._begun: list[_Course] = []

    def plan(self) -> Iterator[Event]:
        """The events that say what is planned, for all faults."""
        for fault in self._timeline.faults:
            first = fault.occurrences[0] if fault.occurrences else None
            planned = FaultPlanned(
                fault.name,
                fault.do.kind,
                fault.targets,
                len(fault.occurrences),
                None if first is None else first.first_round,
                None if first is None else first.begin_s,
            )
            if self._is_new(planned.name, fault.name, 0):
                yield planned

    def happen(self, line: Line) -> Iterator[Event]:
        """The events of faults that follow from a line of the journal."""
        match line["event"]:
            case "round_opened":
                yield from self._round_opened(line["round"], line["scenario_s"])
            case "round_committed":
                yield from self._round_committed(line["round"])
            case "ended":
                yield from self._look_again()
                over = line["status"] in ("completed", "diverged")  # else it may be resumed
                for course in self._begun if over else ():
                    if not course.healed:
                        yield from self._heal(course, with_run=True)
            case _:
                pass

    # --- rounds ----------------------------------------------------------------------------------

    def _round_opened(self, round: int, scenario_s: float | None) -> Iterator[Event]:
        step = step_at(scenario_s or 0.0, self._time)
        self._round = round
        self._opened[round] = scenario_s, step
        for past in [each for each in self._opened if each < round - 8]:
            del self._opened[past]
        for course in self._begun:
            if not course.healed and not course.window.has(round, step):
                yield from self._heal(course)
        for unit, now in (("round", round), ("step", step)):
            later = self._later[unit]
            while later and later[-1].window.first <= now:
                course = later.pop()
                if course.window.has(round, step):  # else it passed between two rounds
                    self._begun.append(course)
                    yield from self._event(FaultApplied, course, course.occurrence.targets)

    def _heal(self, course: _Course, with_run: bool = False) -> Iterator[Event]:
        course.healed = True
        yield from self._event(FaultHealed, course, course.occurrence.targets, with_run)

    def _round_committed(self, round: int) -> Iterator[Event]:
        self._round = round
        step = self._step(round)
        self._begun = [course for course in self._begun if not course.done]
        watched = [
            course
            for course in self._begun
            if not (course.complete and course.window.has(round, step))
        ]
        if not watched:
            return
        traces = self._traces.of_round(round)
        for course in watched:
            struck = _of(course, traces)
            if course.window.has(round, step):
                yield from self._observe(course, struck)
            elif course.healed:
                yield from self._look_again(course)
                yield from self._verify(course, struck)

    def _step(self, round: int) -> int:
        return self._opened.get(round, (None, round - 1))[1]

    def _look_again(self, only: _Course | None = None) -> Iterator[Event]:
        """Look again at the newest rounds, because updates that are sent twice may be recorded with
        the next commit."""
        if self._round is None:
            return
        courses = self._begun if only is None else [only]
        for course in courses:
            if course.observed:
                continue
            for round in (self._round - 1, self._round):
                if round > 0 and course.window.has(round, self._step(round)):
                    yield from self._observe(course, _of(course, self._traces.of_round(round)))

    def _observe(self, course: _Course, traces: Mapping[str, LedgerTrace]) -> Iterator[Event]:
        """Look whether the fault shows in a round in which it acts."""
        if course.complete:
            return
        first, fresh = not course.observed, dict[str, LedgerTrace]()
        for client, trace in traces.items():
            if client in course.observed:
                continue
            trace = trace._replace(usual_s=self._usual_s(course, client))
            if course.do.observed(trace):
                fresh[client] = trace
            elif trace.modelled_s is not None:
                course.unseen[client] = trace
        course.observed |= fresh
        if first and fresh:
            yield from self._event(
                FaultObserved, course, sorted(fresh), course.do.seen(list(fresh.values()))
            )

    def _usual_s(self, course: _Course, client: str) -> float | None:
        if not course.do.compares:
            return None
        if course.usual is None:
            first = course.occurrence.first_round or self._round or 1
            course.usual = self._traces.usual_s(course.occurrence.targets, first)
        return course.usual.get(client)

    def _verify(self, course: _Course, traces: Mapping[str, LedgerTrace]) -> Iterator[Event]:
        """Look whether the effect is gone, in a round after the fault."""
        late = {
            client: old._replace(usual_s=traces[client].modelled_s)
            for client, old in course.unseen.items()
            if client in traces and old.usual_s is None
        }
        shown = {client: old for client, old in late.items() if course.do.observed(old)}
        if shown and not course.observed:
            course.observed |= shown
            yield from self._event(
                FaultObserved, course, sorted(shown), course.do.seen(list(shown.values()))
            )
        if not course.observed:
            return
        for client, trace in traces.items():
            usual_s = course.observed[client].usual_s if client in course.observed else None
            if course.do.gone(trace._replace(usual_s=usual_s)):
                course.clean.add(client)
        if course.clean >= course.observed.keys():
            course.done = True
            yield from self._event(FaultVerified, course, sorted(course.observed))

    # --- events ----------------------------------------------------------------------------------

    def _event(
        self, kind: Any, course: _Course, targets: Sequence[str], *more: str | bool
    ) -> Iterator[Event]:
        round = self._round
        scenario_s = self._opened.get(round or 0, (None, 0))[0]
        if self._is_new(kind.name, course.name, course.occurrence.number):
            number = course.occurrence.number
            yield kind(course.name, number, list(targets), round, scenario_s, *more)

    def _is_new(self, event: str, fault: str, number: int) -> bool:
        key = event, fault, number
        new = key not in self._recorded
        self._recorded.add(key)
        return new


def _of(course: _Course, traces: Mapping[str, LedgerTrace]) -> dict[str, LedgerTrace]:
    """The traces of the targets of a course."""
    return {client: traces[client] for client in course.occurrence.targets if client in traces}
