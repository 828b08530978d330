"""The state of a fleet, computed from the events of its journal and the rows of its ledger, without
I/O or a clock.

Rule 1: what `RunProgress` knows is asked there and not computed again. The terminal, `muster
status` and `muster watch` use it too.

Rule 2: an event costs a few look-ups, because a journal may have millions. Everything that the page
shows is computed when it is asked for.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import orjson

from muster.emulator.following.run_progress import Event, RunProgress
from muster.emulator.live.round_digest import (
    Arrival,
    DeviceAnswer,
    DeviceUpdate,
    RoundDigest,
    digest_of,
)
from muster.emulator.live.run_setup import RunSetup
from muster.emulator.live.series import Series

NEWEST_ROUNDS = 50
"""The number of newest rounds about which the page speaks."""

AWAY, IDLE, DECLINED, WORKING, ARRIVED, UNCOUNTED, OUTSIDE = "o", "i", "d", "w", "u", "x", "-"
"""States of a device: not connected; connected; it declined; it works on a call; its update
arrived; its update does not count, or it gave up; not enrolled in the experiment."""

FREQUENT = {"received", "answered", "declined", "traffic", "enrolled", "attended", "left"}
"""Events about single devices and moments. A journal has so many of them that they would hide all
others."""

_OF_A_ROUND = {"answered", "declined", "received", "late", "refused"}
_OFFLINE = "offline"
_MOST_LINES, _MOST_FREQUENT_LINES = 200, 60
_TRAFFIC_SAMPLES = 120
_TRANSFERRED, _CAPACITY = ("bytes_up", "bytes_down"), ("capacity_up", "capacity_down")


DeviceRow = TypeVar("DeviceRow", DeviceAnswer, DeviceUpdate)


class RoundFacts(NamedTuple):
    """A row of the ledger's table `rounds`, as far as the page shows it."""

    round: int
    called: int
    folded: int
    seconds: float
    effective_size: float | None
    weight_max: float | None
    weight_sum: float | None
    scenario_s: float | None
    opened_at: float
    next_s: float | None = None


class RoundPoint(NamedTuple):
    """What the page's charts show of a round; `largest_share` is that of the largest weight."""

    round: int
    called: int
    folded: int
    effective_size: float | None
    largest_share: float | None


class EvaluationPoint(NamedTuple):
    """What the page's charts show of an evaluated version."""

    round: int
    loss: float | None
    accuracy: float | None


class GroupEvaluation(NamedTuple):
    """A row of the ledger's table `group_evaluations`; `metrics` is JSON."""

    round: int
    group: str
    loss: float | None
    accuracy: float | None
    metrics: str


@dataclass(frozen=True)
class LedgerRows:
    """Rows that were committed since the last look.

    Attributes:
        enrolled: for every client of the ledger, whether it may train; None if that is known.
        rounds: all new rounds, in their order.
        answers, updates, waits: of the newest of these rounds only, as there may be many; waits are
            seconds by round and client.
        metrics: JSON of the other metrics of the newest evaluation; empty if there is none.
    """

    enrolled: Mapping[str, bool] | None = None
    rounds: Sequence[RoundFacts] = ()
    answers: Sequence[DeviceAnswer] = ()
    updates: Sequence[DeviceUpdate] = ()
    waits: Mapping[int, dict[str, float]] = field(default_factory=dict)
    group_evaluations: Sequence[GroupEvaluation] = ()
    metrics: str = ""


@dataclass(slots=True)
class RoundUnderWay:
    """The round that is open.

    Attributes:
        at: when it was opened, in UNIX seconds.
        states: by position, the state of every device that has had its last word in it.
        last_arrivals: the arrival of the last update of each group while it was open.
    """

    number: int
    called: int
    at: float
    scenario_s: float | None
    declined: int = 0
    states: dict[int, str] = field(default_factory=dict)
    last_arrivals: dict[str, Event] = field(default_factory=dict)


@dataclass(slots=True)
class DeviceFacts:
    """What a device last said of itself; None where it said nothing."""

    battery: float | None = None
    charging: bool | None = None
    network: str | None = None
    staleness: int | None = None


class CellRates(NamedTuple):
    """The rates of a cell in bits per second; without a limit, what it can carry is None."""

    up_bps: float
    down_bps: float
    cap_up_bps: float | None
    cap_down_bps: float | None


@dataclass(slots=True)
class LinkTraffic:
    """The newest traffic of a link: UNIX seconds and bits per second.

    Attributes:
        cells: the newest rates of its cells, by name.
    """

    samples: deque[tuple[float, float, float]] = field(
        default_factory=lambda: deque(maxlen=_TRAFFIC_SAMPLES)
    )
    cap_up_bps: float | None = None
    cap_down_bps: float | None = None
    cells: dict[str, CellRates] = field(default_factory=dict)

    def add(self, at: float, seconds: float, up_bps: float, down_bps: float) -> None:
        """Add the traffic of the `seconds` before `at`. There was none since the last before."""
        began = at - seconds
        if self.samples and began - self.samples[-1][0] > seconds / 2:
            self.samples.append((self.samples[-1][0], 0.0, 0.0))
            self.samples.append((began, 0.0, 0.0))
        self.samples.append((at, up_bps, down_bps))


class FleetState:
    """The state of a run and its devices according to what happened so far."""

    def __init__(self, setup: RunSetup) -> None:
        self.setup = setup
        self.progress = RunProgress()
        self.position = {client: place for place, client in enumerate(setup.clients)}
        self.group_of = {
            client: group.name
            for group in setup.groups
            for client in setup.clients[group.first : group.first + group.count]
        }
        self._groups = [self.group_of[client] for client in setup.clients]
        self.facts: dict[int, DeviceFacts] = {}
        self.open: RoundUnderWay | None = None
        self.digests: deque[RoundDigest] = deque(maxlen=NEWEST_ROUNDS)
        self.rounds = Series(RoundPoint._fields)
        self.evaluations = Series(EvaluationPoint._fields)
        self.group_evaluations: dict[str, GroupEvaluation] = {}
        self.metrics = ""
        self.traffic: dict[str, LinkTraffic] = {}
        self.scenario_s: float | None = None
        self.app_measured: Event | None = None
        self._outside: set[int] = set()
        self._working = set[int]()
        self._closed: dict[int, str] = {}
        self._arrivals: dict[int, dict[str, Arrival]] = {}
        self._log: dict[str, deque[tuple[int, Event]]] = {}
        self._number = 0
        self._opened = 0  # the round that was opened last
        self._early: list[Event] = []

    def link_of(self, group: str) -> LinkTraffic | None:
        """The traffic of the link of a group; None: there was none yet."""
        names = (link.name for link in self.setup.links if group in link.groups)
        return self.traffic.get(next(names, group))

    # --- events ----------------------------------------------------------------------------------

    def happen(self, event: Event) -> None:
        """Update the state with an event of the journal; unknown events are only logged."""
        name = event["event"]
        self.progress.happen(event)
        self._handle(event)
        if (lines := self._log.get(name)) is None:
            most = _MOST_FREQUENT_LINES if name in FREQUENT else _MOST_LINES
            lines = self._log[name] = deque(maxlen=most)
        self._number += 1
        lines.append((self._number, event))

    def lines_after(self, number: int) -> list[tuple[int, Event]]:
        """The newest events of each kind whose number is larger, in their order. Events are
        numbered from 1."""
        found = [
            line
            for lines in self._log.values()
            for line in itertools.takewhile(lambda line: line[0] > number, reversed(lines))
        ]
        return sorted(found, key=lambda line: line[0])

    def _handle(self, event: Event) -> None:
        name = event["event"]
        # A server that calls ahead gets answers before it has committed the round before and told
        # that their own was opened.
        if name in _OF_A_ROUND and event["round"] > self._opened:
            self._early.append(event)
        elif handler := _HANDLERS.get(name):
            handler(self, event)

    def _on_server_started(self, event: Event) -> None:
        self.open = None
        self._opened = event.get("round", self._opened)
        self._early.clear()
        self._working.clear()

    def _on_round_opened(self, event: Event) -> None:
        self.scenario_s = event.get("scenario_s")
        self.open = RoundUnderWay(event["round"], event["called"], event["at"], self.scenario_s)
        self._opened = event["round"]
        early, self._early = self._early, []
        for each in early:
            self._handle(each)

    def _on_answered(self, event: Event) -> None:
        place = self.position.get(event["client"])
        if place is None:
            return
        if event["decision"] == "accept":
            self._working.add(place)
        else:
            self._working.discard(place)
            self._say(place, UNCOUNTED)

    def _on_declined(self, event: Event) -> None:
        if self.open is not None:
            self.open.declined += sum(event["reasons"].values())

    def _on_received(self, event: Event) -> None:
        place = self.position.get(event["client"])
        if place is not None:
            self._working.discard(place)
            if self.open is not None:
                self.open.states[place] = ARRIVED
                self.open.last_arrivals[self._groups[place]] = event

    def _on_late(self, event: Event) -> None:
        place = self.position.get(event["client"])
        if place is not None:
            self._working.discard(place)
            self._say(place, UNCOUNTED)

    _on_refused = _on_late

    def _say(self, place: int, state: str) -> None:
        if self.open is not None:
            self.open.states[place] = state

    def _on_left(self, event: Event) -> None:
        self._working.discard(self.position.get(event["client"], -1))

    def _on_round_committed(self, event: Event) -> None:
        if self.open is not None:
            self._closed, last = self.open.states, self.open.last_arrivals
            self._arrivals[event["round"]] = {
                group: Arrival(arrival["client"], arrival["at"]) for group, arrival in last.items()
            }
            self._arrivals.pop(event["round"] - NEWEST_ROUNDS, None)
            self.open = None
        if not self.setup.outlives_round:
            self._working.clear()

    def _on_evaluated(self, event: Event) -> None:
        self.evaluations.append(EvaluationPoint(event["round"], event["loss"], event["accuracy"]))

    def _on_app_measured(self, event: Event) -> None:
        self.app_measured = event

    def _on_traffic(self, event: Event) -> None:
        link = self.traffic.setdefault(str(event["group"]), LinkTraffic())
        if (seconds := event["seconds"]) <= 0:
            return
        link.add(event["at"], seconds, *(8 * event[name] / seconds for name in _TRANSFERRED))
        link.cap_up_bps, link.cap_down_bps = _capacities(event, seconds)
        for name, cell in link.cells.items():
            link.cells[name] = cell._replace(up_bps=0.0, down_bps=0.0)
        for name, cell in event.get("cells", {}).items():
            up_bps, down_bps = (8 * cell[way] / seconds for way in _TRANSFERRED)
            link.cells[name] = CellRates(up_bps, down_bps, *_capacities(cell, seconds))

    def _on_died(self, event: Event) -> None:
        if event["process"] == "server":
            self._on_server_started(event)

    # --- rows of the ledger ----------------------------------------------------------------------

    def learn(self, rows: LedgerRows) -> None:
        """Update the state with new rows of the ledger."""
        if rows.enrolled is not None:
            self._outside = {
                self.position[client]
                for client, enrolled in rows.enrolled.items()
                if not enrolled and client in self.position
            }
        self.metrics = rows.metrics or self.metrics
        for each in rows.group_evaluations:
            self.group_evaluations[each.group] = each
        for facts in rows.rounds:
            share = None
            if facts.weight_max is not None and facts.weight_sum:
                share = facts.weight_max / facts.weight_sum
            self.rounds.append(
                RoundPoint(facts.round, facts.called, facts.folded, facts.effective_size, share)
            )
            if ended_s := self._end_of(facts):
                self.scenario_s = max(self.scenario_s or 0.0, ended_s)
        self._digest(rows)

    def _end_of(self, facts: RoundFacts) -> float:
        """The scenario time at which a round ended; 0 if it is not known."""
        if self.setup.lockstep:
            return facts.next_s or 0.0
        return (facts.scenario_s or 0.0) + facts.seconds * self.setup.scale

    def _digest(self, rows: LedgerRows) -> None:
        answers = _by_round(rows.answers)
        updates = _by_round(rows.updates)
        for facts in rows.rounds:
            said, sent = answers.get(facts.round, []), updates.get(facts.round, [])
            if not said and not sent:
                continue
            self.digests.append(
                digest_of(
                    facts.round,
                    facts.opened_at,
                    said,
                    sent,
                    rows.waits.get(facts.round, {}),
                    self._arrivals.get(facts.round, {}),
                    self.group_of,
                    self.setup.lockstep,
                )
            )
            self._closed = {}
            for answer in said:
                self._learn_answer(answer)
            for update in sent:
                self._learn_update(update)

    def _learn_answer(self, answer: DeviceAnswer) -> None:
        place = self.position.get(answer.client)
        if place is None:
            return
        if answer.decision == "absent" or answer.reason == _OFFLINE:
            self._closed[place] = AWAY
        elif answer.decision in ("decline", "abort"):
            self._closed[place] = DECLINED if answer.decision == "decline" else UNCOUNTED
        if answer.state:
            state = orjson.loads(answer.state)
            if isinstance(state, dict):
                facts = self.facts.setdefault(place, DeviceFacts())
                facts.battery, facts.charging = state.get("battery"), state.get("charging")
                facts.network = state.get("network")

    def _learn_update(self, update: DeviceUpdate) -> None:
        place = self.position.get(update.client)
        if place is None or update.outcome == "duplicate":
            return
        if update.outcome == "folded":
            self._closed[place] = ARRIVED
            self.facts.setdefault(place, DeviceFacts()).staleness = update.staleness
        else:
            self._closed.setdefault(place, UNCOUNTED)

    # --- devices ---------------------------------------------------------------------------------

    def device_states(self) -> str:
        """The state of every device, a character each, in the order of the population."""
        return "".join(self._states())

    def _states(self) -> Iterator[str]:
        present, working, closed = self.progress.present, self._working, self._closed
        spoken = {} if self.open is None else self.open.states
        over = self.progress.status is not None
        for place, client in enumerate(self.setup.clients):
            if place in self._outside:
                yield OUTSIDE
            elif client not in present and not over:
                yield AWAY
            elif place in working:
                yield WORKING
            else:
                yield spoken.get(place) or closed.get(place) or IDLE

    def working_by_group(self) -> Counter[str]:
        """The number of devices that work on a call, by group."""
        return Counter(self._groups[place] for place in self._working)


def _by_round(rows: Sequence[DeviceRow]) -> dict[int, list[DeviceRow]]:
    found: dict[int, list[DeviceRow]] = {}
    for row in rows:
        found.setdefault(row.round, []).append(row)
    return found


_HANDLERS: dict[str, Callable[[FleetState, Event], None]] = {
    name.removeprefix("_on_"): method
    for name, method in vars(FleetState).items()
    if name.startswith("_on_")
}
"""The method `_on_NAME` of every event called NAME that is handled."""


def _capacities(event: Mapping[str, Any], seconds: float) -> tuple[float | None, float | None]:
    up, down = (None if event[name] is None else 8 * event[name] / seconds for name in _CAPACITY)
    return up, down
