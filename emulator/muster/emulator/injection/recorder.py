"""Records what becomes of the faults that act inside devices: applied, observed, healed, verified.

The recorder follows the journal. A round that opens in a fault's window applies it, and the first
round after the window heals it. The rows that a commit enters in the ledger show whether a fault
was observed, if they are about a call of a round in its window; some modes enter them long after
that round. It is verified when every target on which it was observed has been seen without its
effect, in a call of a later round. The recorder has no clock, so a run and its simulation record
the same.

A device works for one call after the other. As soon as an update of a later call was entered, or
the device has declined one without being busy, nothing about the calls before is still to come.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from muster.client.faults.scheduled import Window
from muster.common.events import Event
from muster.common.exchange import Reason
from muster.common.fault_events import (
    FaultApplied,
    FaultHealed,
    FaultObserved,
    FaultPlanned,
    FaultVerified,
)
from muster.common.faults import NO_ANSWER, LedgerTrace, TracedFault
from muster.emulator.faults.times import RunTime
from muster.emulator.fleet.device_faults import window_of
from muster.emulator.fleet.fault_timeline import FaultTimeline, Occurrence
from muster.emulator.records.fault_traces import CallTrace
from muster.server.rounds.steps import step_at

_REMEMBERED = 10_000
"""Rounds whose scenario time is remembered for events about them."""

Line = Mapping[str, Any]
"""A line of the journal."""


class Traces(Protocol):
    """Reads traces of faults from the ledger."""

    def entered(self, round: int | None, clients: Collection[str]) -> Sequence[CallTrace]:
        """The traces of these devices' calls that were entered with the commit of a round, in the
        order of the rounds of the calls; None: after the commit of the newest round."""
        ...

    def usual_s(self, clients: Iterable[str], before: int) -> Mapping[str, float]:
        """The median of each device's modelled seconds in rounds before `before`."""
        ...


@dataclass(slots=True, eq=False)
class _Course:
    """The course of one occurrence of a fault.

    Attributes:
        first, end: the first round in which it acts, and the first one in which it no longer does.
        waiting: targets about which something may still be to come.
        fresh, seen: traces of targets on which it was observed: in the rows of the newest commit,
            each with the round of its call; in all rows.
        unseen: traces of targets in its rounds that do not show it, if it compares.
        clean: targets that were seen without its effect afterwards, each with the round.
    """

    name: str
    do: TracedFault
    occurrence: Occurrence
    window: Window
    first: int = 0
    end: int | None = None
    waiting: set[str] = field(default_factory=set)
    fresh: dict[str, tuple[int, LedgerTrace]] = field(default_factory=dict)
    seen: dict[str, LedgerTrace] = field(default_factory=dict)
    unseen: dict[str, LedgerTrace] = field(default_factory=dict)
    clean: dict[str, int] = field(default_factory=dict)
    usual: Mapping[str, float] | None = None
    told: bool = False

    @property
    def needs_rows(self) -> bool:
        """Whether rows of the ledger could say more about it."""
        return self.end is not None or len(self.seen) < len(self.occurrence.targets)

    def has(self, round: int) -> bool:
        """Whether it acts on the calls of a round."""
        return self.first <= round and (self.end is None or round < self.end)

    def show(self, call: int, client: str, trace: LedgerTrace) -> None:
        """Enter a trace that shows the effect."""
        self.fresh[client], self.seen[client] = (call, trace), trace


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
        self._opened: dict[int, float | None] = {}
        courses = [
            _Course(fault.name, fault.do, occurrence, window_of(occurrence, time))
            for fault in timeline.faults
            if isinstance(fault.do, TracedFault)
            for occurrence in fault.occurrences
        ]
        # Those that begin later, the next one last.
        self._later = {
            unit: sorted(
                (course for course in reversed(courses) if course.window.unit == unit),
                key=lambda course: -course.window.first,
            )
            for unit in ("round", "step")
        }
        self._acting: list[_Course] = []
        self._healed: dict[_Course, None] = {}
        # By client, the courses that wait for something about it; and the newest call that it has
        # accepted.
        self._watched: dict[str, dict[_Course, None]] = {}
        self._called: dict[str, int] = {}

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
                yield from self._rows_entered(line["round"])
            case "ended":
                yield from self._rows_entered(None)
                if line["status"] in ("completed", "diverged"):  # else it may be resumed
                    for course in self._acting:
                        yield from self._event(FaultHealed, course, self._round, None, True)
            case _:
                pass

    # --- rounds ----------------------------------------------------------------------------------

    def _round_opened(self, round: int, scenario_s: float | None) -> Iterator[Event]:
        step = step_at(scenario_s or 0.0, self._time.round_s)
        self._round = round
        self._opened[round] = scenario_s
        self._opened.pop(round - _REMEMBERED, None)
        for course in self._acting[:]:
            if not course.window.has(round, step):
                self._acting.remove(course)
                self._healed[course] = None
                course.end = round
                yield from self._event(FaultHealed, course, round)
        for unit, now in (("round", round), ("step", step)):
            later = self._later[unit]
            while later and later[-1].window.first <= now:
                course = later.pop()
                if course.window.has(round, step):  # else it passed between two rounds
                    self._begin(course, round)
                    yield from self._event(FaultApplied, course, round)

    def _begin(self, course: _Course, round: int) -> None:
        course.first = round
        course.waiting = set(course.occurrence.targets)
        self._acting.append(course)
        for client in course.occurrence.targets:
            self._watched.setdefault(client, {})[course] = None

    # --- rows of the ledger ----------------------------------------------------------------------

    def _rows_entered(self, round: int | None) -> Iterator[Event]:
        """Look at what was entered with the commit of a round; None: after the newest commit."""
        if not self._healed and not any(course.needs_rows for course in self._acting):
            return
        touched: dict[_Course, None] = {}
        for row in self._traces.entered(round, self._watched.keys()):
            for call, trace in self._calls_of(row):
                for course in [*self._watched.get(row.client, ())]:
                    touched[course] = None
                    self._see(course, call, row.client, trace)
        for course in touched:
            yield from self._tell(course)

    def _calls_of(self, row: CallTrace) -> Iterator[tuple[int, LedgerTrace]]:
        """The round of the call to which a trace belongs, with the trace. An update that came once
        more has come with a later call of the device: the newest that it has accepted, or else one
        of the round that is open."""
        call, client, trace = row
        if trace.updates or trace.decision not in NO_ANSWER:
            self._called[client] = max(call, self._called.get(client, 0))
        yield call, trace._replace(earlier=())
        if trace.earlier:
            later = self._called.get(client, 0)
            yield later if later > call else self._round or 0, LedgerTrace(earlier=trace.earlier)

    def _see(self, course: _Course, call: int, client: str, trace: LedgerTrace) -> None:
        if course.has(call):
            self._observe(course, call, client, trace)
        elif course.end is not None and call >= course.end:
            self._look_whether_gone(course, call, client, trace)
            moved_on = trace.updates or (
                trace.decision == "decline" and trace.reason != Reason.BUSY.value
            )
            if moved_on and (client in course.clean or client not in course.seen):
                self._forget(course, client)

    def _observe(self, course: _Course, call: int, client: str, trace: LedgerTrace) -> None:
        """Look whether the fault shows in a call on which it acts."""
        if client in course.seen:
            return
        trace = trace._replace(usual_s=self._usual_s(course, client))
        if course.do.observed(trace):
            course.show(call, client, trace)
        elif course.do.compares and trace.modelled_s is not None:
            course.unseen[client] = trace

    def _usual_s(self, course: _Course, client: str) -> float | None:
        if not course.do.compares:
            return None
        if course.usual is None:
            before = course.occurrence.first_round or course.first
            course.usual = self._traces.usual_s(course.occurrence.targets, before)
        return course.usual.get(client)

    def _look_whether_gone(
        self, course: _Course, call: int, client: str, trace: LedgerTrace
    ) -> None:
        """Look whether the effect is gone in a call after the fault."""
        before = course.unseen.get(client)
        if before is not None and before.usual_s is None:  # compared with the time afterwards
            late = before._replace(usual_s=trace.modelled_s)
            if course.do.observed(late):
                course.show(call, client, late)
        usual_s = course.seen[client].usual_s if client in course.seen else None
        if course.do.gone(trace._replace(usual_s=usual_s)):
            course.clean.setdefault(client, call)

    def _forget(self, course: _Course, client: str) -> None:
        """Expect nothing more about a target."""
        course.waiting.discard(client)
        if not course.waiting:
            self._healed.pop(course, None)
        watched = self._watched[client]
        watched.pop(course, None)
        if not watched:
            del self._watched[client]
            self._called.pop(client, None)

    # --- events ----------------------------------------------------------------------------------

    def _tell(self, course: _Course) -> Iterator[Event]:
        fresh, course.fresh = course.fresh, {}
        if fresh and not course.told:
            course.told = True
            said = course.do.seen([trace for _, trace in fresh.values()])
            first = min(call for call, _ in fresh.values())
            yield from self._event(FaultObserved, course, first, sorted(fresh), said)
        if course.seen and course.end is not None and course.clean.keys() >= course.seen.keys():
            last = max(course.clean[client] for client in course.seen)
            yield from self._event(FaultVerified, course, last, sorted(course.seen))

    def _event(
        self,
        kind: Any,
        course: _Course,
        round: int | None,
        targets: Sequence[str] | None = None,
        *more: str | bool,
    ) -> Iterator[Event]:
        number = course.occurrence.number
        if self._is_new(kind.name, course.name, number):
            targets = course.occurrence.targets if targets is None else targets
            scenario_s = self._opened.get(round or 0)
            yield kind(course.name, number, list(targets), round, scenario_s, *more)

    def _is_new(self, event: str, fault: str, number: int) -> bool:
        key = event, fault, number
        new = key not in self._recorded
        self._recorded.add(key)
        return new
