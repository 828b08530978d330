"""Shows how a run goes while it goes on, from the events of its journal.

Rule 1: an event costs a table look-up and a little arithmetic. Displays draw when a person could
see the difference, a few times per second, however many events come.

Rule 2: a stream that is not a terminal gets plain lines without control characters, and names
that came from peers are cleaned before they are shown anywhere.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from muster.common.clock import Clock
from muster.emulator.summary import bytes_text, clean, number_text, percent_text, seconds_text

Event = Mapping[str, Any]

FEW_ROUNDS = 20
"""A run of up to this many rounds gets a plain line for each, however fast they are."""

_LINE_EVERY_S = 1.0
_FRAMES_PER_S = 4
_WIDTH = 100
# Weight of the newest round in the pace: about the last ten rounds decide the time left.
_NEWEST = 0.2


class Progress(Protocol):
    """What shows a run."""

    def show(self, event: Event) -> None:
        """Take notice of `event`, a line of the journal; unknown events are passed over."""
        ...

    def close(self) -> None:
        """Show what is still to be shown and leave the stream as it was; nothing follows."""
        ...


def progress(stream: TextIO, clock: Clock, *, title: str, quiet: bool = False) -> Progress:
    """The display that suits `stream`: live on a terminal, otherwise lines; quiet: few of them.

    Args:
        title: what to call the run.
    """
    if quiet or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return Lines(stream, clock, title=title, quiet=quiet)
    return LivePanel(stream, title=title)


@dataclass(slots=True)
class Standing:
    """Where a run stands, as far as its events tell. No I/O and no clock in it.

    Attributes:
        round: the last one committed, also by an earlier incarnation of the server.
        open: a round has been opened, so start-up is over.
        notices: what a person should know, one line each; the displays take them out.
    """

    population: int = 0
    rounds: int = 0
    round: int = 0
    open: bool = False
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
    notices: list[str] = field(default_factory=list)
    _paced_at: float | None = None
    _pace_s: float | None = None

    def happen(self, event: Event) -> None:
        """Take notice of one event."""
        if handler := _HANDLERS.get(event["event"]):
            handler(self, event)

    @property
    def left_s(self) -> float | None:
        """Seconds until the last round, at the pace of the newest; None: too early to say."""
        return None if self._pace_s is None else self._pace_s * (self.rounds - self.round)

    def _server_started(self, event: Event) -> None:
        self.population, self.rounds = event["population"], event["rounds"]
        self.round, self.open, self._paced_at = event["round"], False, None
        # Sessions ended with the server that gave them, and so did the open round.
        self.enrolled.clear()
        self.present.clear()
        self.arriving = 0

    def _enrolled(self, event: Event) -> None:
        self.enrolled.add(event["client"])

    def _attended(self, event: Event) -> None:
        self.present.add(event["client"])

    def _left(self, event: Event) -> None:
        self.present.discard(event["client"])

    def _round_opened(self, event: Event) -> None:
        self.open = True
        if self._paced_at is None:
            self._paced_at = event["at"]

    def _received(self, event: Event) -> None:
        self.arriving += event["bytes"]

    def _round_committed(self, event: Event) -> None:
        self.round, self.called, self.folded = event["round"], event["called"], event["folded"]
        self.empty += event["outcome"] == "empty"
        self.seconds += event["seconds"]
        self.bytes_up += event["bytes_up"]
        self.bytes_down += event["bytes_down"]
        self.arriving = 0
        # The events' own times, not those of their arrival: a reader may get many at once.
        if self._paced_at is not None:
            took = event["at"] - self._paced_at
            pace = took if self._pace_s is None else self._pace_s
            self._pace_s = pace + _NEWEST * (took - pace)
        self._paced_at = event["at"]

    def _evaluated(self, event: Event) -> None:
        self.loss, self.accuracy = event["loss"], event["accuracy"]
        self.evaluated_round = event["round"]

    def _died(self, event: Event) -> None:
        self.notices.append(f"problem: {clean(event['process'])} died ({clean(event['status'])})")

    def _restarted(self, event: Event) -> None:
        self.notices.append(f"{clean(event['process'])} was restarted")

    def _ended(self, event: Event) -> None:
        self.status, self.detail = clean(event["status"]), clean(event["detail"] or "")


_HANDLERS: dict[str, Callable[[Standing, Event], None]] = {
    "server_started": Standing._server_started,
    "enrolled": Standing._enrolled,
    "attended": Standing._attended,
    "left": Standing._left,
    "round_opened": Standing._round_opened,
    "received": Standing._received,
    "round_committed": Standing._round_committed,
    "evaluated": Standing._evaluated,
    "died": Standing._died,
    "restarted": Standing._restarted,
    "ended": Standing._ended,
}


class Lines:
    """Plain lines: of a few rounds each one, of many about one per second; always the last."""

    def __init__(self, stream: TextIO, clock: Clock, *, title: str, quiet: bool = False) -> None:
        self._stream, self._clock = stream, clock
        self._title, self._quiet = clean(title), quiet
        self._standing = Standing()
        self._next_at = -math.inf
        self._unsaid = False

    def show(self, event: Event) -> None:
        standing, name = self._standing, event["event"]
        if name == "round_opened" and not standing.open:
            self._say_rest()
        standing.happen(event)
        if standing.notices:
            self._write(standing.notices)
        if name in ("server_started", "enrolled", "round_committed"):
            self._unsaid = True
            each = name == "round_committed" and standing.rounds <= FEW_ROUNDS
            if each or self._clock.monotonic() >= self._next_at:
                self._say_rest()

    def close(self) -> None:
        self._say_rest()
        self._write([f"{self._title}: {_ending(self._standing)}"])

    def _say_rest(self) -> None:
        if self._unsaid and not self._quiet:
            self._write([f"{self._title}: {', '.join([_stage(self._standing), *_facts(self._standing)])}"])
        self._unsaid = False
        self._next_at = self._clock.monotonic() + _LINE_EVERY_S

    def _write(self, lines: list[str]) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._standing.notices.clear()


class LivePanel:
    """A panel at the bottom of a terminal, drawn a few times per second by rich's thread."""

    def __init__(self, stream: TextIO, *, title: str) -> None:
        self._title = Text(clean(title), style="bold")
        self._standing = Standing()
        self._console = Console(file=stream, force_terminal=True)
        self._live = Live(
            console=self._console,
            get_renderable=self._panel,
            refresh_per_second=_FRAMES_PER_S,
        )
        self._live.start()

    def show(self, event: Event) -> None:
        self._standing.happen(event)
        for notice in self._standing.notices:
            self._console.print(Text(notice, style="yellow"))
        self._standing.notices.clear()

    def close(self) -> None:
        self._live.stop()

    def _panel(self) -> Panel:
        standing = self._standing
        done, total = (
            (standing.round, standing.rounds)
            if standing.open or standing.round
            else (len(standing.enrolled), standing.population)
        )
        top = Table.grid(padding=(0, 2), expand=True)
        top.add_column(no_wrap=True)
        top.add_column(ratio=1)
        top.add_column(no_wrap=True)
        top.add_row(
            Text(_stage(standing)), ProgressBar(total or 1, done), Text(standing.status or _left(standing))
        )
        facts = Text("   ".join(_facts(standing)), style="dim")
        width = min(self._console.width, _WIDTH)
        return Panel(Group(top, facts), title=self._title, title_align="left", width=width)
