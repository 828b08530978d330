"""Turns the events of a run into metrics. Each kind of event has one method here."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from muster.common.clock import Clock
from muster.common.events import (
    Answered,
    Attended,
    Declined,
    DiskHasRoom,
    DiskRanFull,
    Duplicate,
    Ended,
    Evaluated,
    Event,
    Late,
    Left,
    Received,
    Refused,
    Revoked,
    RoundCommitted,
    RoundOpened,
    ServerStarted,
    Warned,
)
from muster.common.exchange import Decision
from muster.server.fleet.devices import EnrolledDevice
from muster.server.metrics import measures
from muster.server.metrics.measures import MEASURES, Kind, Measure

# A time for each series, which would double their number.
disable_created_metrics()  # type: ignore[no-untyped-call]

_KEPT_ROUNDS = 1_000
"""The most rounds whose openings are remembered. An update for the call of an older one is not
timed."""


class RunMetrics:
    """The metrics of one server.

    Args:
        devices: the devices that may train.
    """

    def __init__(self, devices: Iterable[EnrolledDevice], clock: Clock) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._made: dict[Measure, Any] = {}
        self._series: dict[tuple[Measure, *tuple[str, ...]], Any] = {}
        self._clock = clock
        self._groups = {device.client: device.group for device in devices}
        self._present = set[str]()
        self._opened_at: dict[int, float] = {}
        self._goal, self._counts_versions = 0, False
        self._begin_at_zero()
        self._showing: Mapping[type[Event], Callable[[Any], None]] = {
            ServerStarted: self._started,
            Attended: self._attended,
            Left: self._left,
            Revoked: self._revoked,
            RoundOpened: self._opened,
            Answered: self._answered,
            Declined: self._declined,
            Received: self._received,
            Late: self._uncounted,
            Refused: self._uncounted,
            Duplicate: self._uncounted,
            RoundCommitted: self._committed,
            Evaluated: self._evaluated,
            Warned: self._warned,
            DiskRanFull: self._disk_ran_full,
            DiskHasRoom: self._disk_has_room,
            Ended: self._ended,
        }

    def show(self, event: Event) -> None:
        """Enter an event of the server."""
        if (show := self._showing.get(type(event))) is not None:
            show(event)

    def render(self, accept: str) -> tuple[str, bytes]:
        """The content type and the text of all metrics. Safe in any thread.

        Args:
            accept: the formats that the reader understands, as in the header of HTTP; empty: any.
        """
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def _begin_at_zero(self) -> None:
        """Export what is known before any event. Prometheus sees how much a series grows only from
        its second value on, so counters and histograms begin at 0."""
        for measure in MEASURES:
            if not measure.labels and measure.kind is not Kind.GAUGE:
                self._of(measure)
            elif measure.labels == ("group",):
                for group in set(self._groups.values()):
                    self._of(measure, group)
        for group in self._groups.values():
            self._of(measures.DEVICES, group).inc()
        self._of(measures.DISK_FULL).set(0)

    def _of(self, measure: Measure, *labels: str) -> Any:
        """The series of a metric with these values of its labels."""
        series = self._series.get((measure, *labels))
        if series is None:
            made = self._made.get(measure)
            if made is None:
                made = self._made[measure] = _made(measure, self._registry)
            # Kept, because the library takes a third of an event's time to find it again.
            series = self._series[measure, *labels] = made.labels(*labels) if labels else made
        return series

    # --- the run -------------------------------------------------------------------------------

    def _started(self, event: ServerStarted) -> None:
        self._of(measures.RUN, event.run).set(1)
        self._goal, self._counts_versions = event.rounds, event.counts == "versions"
        self._reached(event.round, event.version)

    def _reached(self, round: int, version: int) -> None:
        self._of(measures.ROUND).set(round)
        self._of(measures.VERSION).set(version)
        if self._goal:
            done = version if self._counts_versions else round
            self._of(measures.PROGRESS).set(done / self._goal)

    def _ended(self, event: Ended) -> None:
        self._moved(event.bytes_up, event.bytes_down)

    def _moved(self, bytes_up: int, bytes_down: int) -> None:
        self._of(measures.TRAFFIC, "up").inc(bytes_up)
        self._of(measures.TRAFFIC, "down").inc(bytes_down)

    # --- devices -------------------------------------------------------------------------------

    def _attended(self, event: Attended) -> None:
        group = self._groups[event.client]
        self._of(measures.CONNECTIONS, group).inc()
        if event.client not in self._present:
            self._present.add(event.client)
            self._of(measures.PRESENT, group).inc()

    def _left(self, event: Left) -> None:
        if event.client in self._present:
            self._present.remove(event.client)
            self._of(measures.PRESENT, self._groups[event.client]).dec()

    def _revoked(self, event: Revoked) -> None:
        self._of(measures.REVOKED).inc(len(event.clients))

    # --- rounds --------------------------------------------------------------------------------

    def _opened(self, event: RoundOpened) -> None:
        self._of(measures.CALLS).inc(event.called)
        if event.scenario_s is not None:
            self._of(measures.SCENARIO).set(event.scenario_s)
        self._opened_at[event.round] = self._clock.monotonic()
        if len(self._opened_at) > _KEPT_ROUNDS:
            del self._opened_at[next(iter(self._opened_at))]

    def _answered(self, event: Answered) -> None:
        if event.decision == Decision.ABORT:
            self._of(measures.ABORTED, event.reason or "").inc()

    def _declined(self, event: Declined) -> None:
        for reason, devices in event.reasons.items():
            self._of(measures.DECLINED, reason).inc(devices)

    def _received(self, event: Received) -> None:
        group = self._groups[event.client]
        self._of(measures.RECEIVED, group).inc()
        self._of(measures.UPDATE_BYTES).observe(event.bytes)
        # An update may be received right before its round is told to be open.
        if (opened_at := self._opened_at.get(event.round)) is not None:
            took = self._clock.monotonic() - opened_at
            self._of(measures.UPDATE_SECONDS, group).observe(took)

    def _uncounted(self, event: Late | Refused | Duplicate) -> None:
        self._of(measures.UNCOUNTED, event.name, event.reason or "").inc()

    def _committed(self, event: RoundCommitted) -> None:
        self._reached(event.round, event.version)
        self._of(measures.ROUNDS, event.outcome).inc()
        self._of(measures.ROUND_SECONDS).observe(event.seconds)
        self._of(measures.ACCEPTED).inc(event.accepted)
        self._of(measures.FOLDED).inc(event.folded)
        staleness = self._of(measures.STALENESS)
        for versions, updates in event.staleness.items():
            for _ in range(updates):
                staleness.observe(int(versions))
        self._moved(event.bytes_up, event.bytes_down)
        if event.epsilon is not None:
            self._of(measures.EPSILON).set(event.epsilon)

    def _evaluated(self, event: Evaluated) -> None:
        self._of(measures.LOSS).set(event.loss)
        if event.accuracy is not None:
            self._of(measures.ACCURACY).set(event.accuracy)
        self._of(measures.EVALUATION_SECONDS).observe(event.seconds)

    # --- trouble -------------------------------------------------------------------------------

    def _warned(self, event: Warned) -> None:
        self._of(measures.WARNINGS).inc()

    def _disk_ran_full(self, event: DiskRanFull) -> None:
        self._of(measures.DISK_FULL).set(1)

    def _disk_has_room(self, event: DiskHasRoom) -> None:
        self._of(measures.DISK_FULL).set(0)
        self._of(measures.DISK_WAIT_SECONDS).inc(event.seconds)


def _made(measure: Measure, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    """The library's metric of a measure."""
    described = measure.name, measure.meaning.replace("`", ""), measure.labels
    if measure.kind is Kind.HISTOGRAM:
        return Histogram(*described, buckets=measure.buckets, registry=registry)
    kind = Counter if measure.kind is Kind.COUNTER else Gauge
    return kind(*described, registry=registry)
