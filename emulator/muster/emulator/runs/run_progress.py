"""Where a run stands, told from the events of its journal: no I/O, no clock.

An event costs one look-up in a table and a little arithmetic, so a display can take every event of
a large fleet and draw when it likes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.emulator.results.summary import clean

Event = Mapping[str, Any]
"""A line of the journal, as `Journal.add` returns it."""

# Weight of the newest round in the pace: about the last ten rounds decide the time left.
_NEWEST = 0.2


@dataclass(slots=True)
class RunProgress:
    """Where a run stands, as far as the events so far tell.

    Attributes:
        round: the last one committed, also by an earlier incarnation of the server.
        enrolled: clients with a session of the present server.
        bytes_up, bytes_down: of bodies that came from devices and went to them, in the whole run.
        arriving: bytes of the updates that have come in the open round.
        measuring: what of the links is being measured before the run; empty: nothing.
        notices: what a person should know, one line each; the displays take them out.
    """

    population: int = 0
    rounds: int = 0
    round: int = 0
    enrolled: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    called: int = 0
    folded: int = 0
    empty: int = 0
    loss: float | None = None
    accuracy: float | None = None
    evaluated_round: int = 0
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    arriving: int = 0
    status: str | None = None
    detail: str = ""
    measuring: str = ""
    notices: list[str] = field(default_factory=list)
    _committed_at: float | None = None
    _pace_s: float | None = None

    def happen(self, event: Event) -> None:
        """Take notice of one event."""
        if handler := _HANDLERS.get(event["event"]):
            handler(self, event)

    @property
    def starting(self) -> bool:
        """The present server has committed nothing yet; devices come up."""
        return self._committed_at is None

    @property
    def left_s(self) -> float | None:
        """Seconds until the last round, at the pace of the newest; None: too early to say."""
        return None if self._pace_s is None else self._pace_s * (self.rounds - self.round)

    def _server_started(self, event: Event) -> None:
        self.population, self.rounds = event["population"], event["rounds"]
        self.round = event["round"]
        self.bytes_up, self.bytes_down = event["bytes_up"], event["bytes_down"]
        self.status, self.detail = None, ""  # a run that had ended was resumed
        self._committed_at = None  # it may have told of rounds of the server before it

    def _enrolled(self, event: Event) -> None:
        self.enrolled.add(event["client"])

    def _attended(self, event: Event) -> None:
        self.present.add(event["client"])

    def _left(self, event: Event) -> None:
        self.present.discard(event["client"])

    def _received(self, event: Event) -> None:
        self.arriving += event["bytes"]

    def _round_committed(self, event: Event) -> None:
        self.round, self.called, self.folded = event["round"], event["called"], event["folded"]
        self.empty += event["outcome"] == "empty"
        self.seconds += event["seconds"]
        self.bytes_up += event["bytes_up"]
        self.bytes_down += event["bytes_down"]
        self.arriving = 0
        # The events' own times, not those of their arrival: a reader may get many at once. The
        # first round of a server is left out, for it also waits for devices to start.
        if self._committed_at is not None:
            took = event["at"] - self._committed_at
            pace = took if self._pace_s is None else self._pace_s
            self._pace_s = pace + _NEWEST * (took - pace)
        self._committed_at = event["at"]

    def _evaluated(self, event: Event) -> None:
        self.loss, self.accuracy = event["loss"], event["accuracy"]
        self.evaluated_round = event["round"]

    def _verifying(self, event: Event) -> None:
        self.measuring = clean(event["step"])

    def _verified(self, event: Event) -> None:
        self.measuring = ""

    def _died(self, event: Event) -> None:
        self.notices.append(f"problem: {clean(event['process'])} died ({clean(event['status'])})")
        if event["process"] == "server":
            # Sessions end with the server that gave them, and so does the open round.
            self.enrolled.clear()
            self.present.clear()
            self.arriving, self._committed_at = 0, None

    def _restarted(self, event: Event) -> None:
        self.notices.append(f"{clean(event['process'])} was restarted")

    def _ended(self, event: Event) -> None:
        self.status, self.detail = clean(event["status"]), clean(event["detail"] or "")
        self.bytes_up += event["bytes_up"]
        self.bytes_down += event["bytes_down"]
        self.arriving = 0


_HANDLERS: dict[str, Callable[[RunProgress, Event], None]] = {
    "server_started": RunProgress._server_started,
    "enrolled": RunProgress._enrolled,
    "attended": RunProgress._attended,
    "left": RunProgress._left,
    "received": RunProgress._received,
    "round_committed": RunProgress._round_committed,
    "evaluated": RunProgress._evaluated,
    "verifying": RunProgress._verifying,
    "verified": RunProgress._verified,
    "died": RunProgress._died,
    "restarted": RunProgress._restarted,
    "ended": RunProgress._ended,
}
