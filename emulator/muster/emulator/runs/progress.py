"""Shows how a run goes while it goes on, from the events of its journal.

Rule 1: an event costs a table look-up and a little arithmetic. Displays draw when a person could
see the difference, a few times per second, however many events come.

Rule 2: a stream that is not a terminal gets plain lines without control characters, and names
that came from peers are cleaned before they are shown anywhere.
"""

import math
import os
from contextlib import suppress
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from muster.common.clock import Clock
from muster.emulator.results.summary import (
    bytes_text,
    clean,
    number_text,
    percent_text,
    seconds_text,
)
from muster.emulator.runs.run_progress import Event, RunProgress

FEW_ROUNDS = 20
"""A run of up to this many rounds gets a plain line for each, however fast they are."""

_LINE_EVERY_S = 1.0
_FRAMES_PER_S = 4
_WIDTH = 100


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


class LenientProgress:
    """Shows a run until the stream takes no more: a full disk or a closed terminal ends no run.

    A reader that goes away does end it (`muster run … 2>&1 | head`), as it ends any program.
    """

    def __init__(self, display: Progress) -> None:
        self._display: Progress | None = display

    def show(self, event: Event) -> None:
        if self._display is not None:
            try:
                self._display.show(event)
            except BrokenPipeError:
                raise
            except OSError:
                self._display = None

    def close(self) -> None:
        if self._display is not None:
            with suppress(OSError):
                self._display.close()


class Lines:
    """Plain lines: of a few rounds each one, of many about one per second; always the last."""

    def __init__(self, stream: TextIO, clock: Clock, *, title: str, quiet: bool = False) -> None:
        self._stream, self._clock = stream, clock
        self._title, self._quiet = clean(title), quiet
        self._standing = RunProgress()
        self._next_at = -math.inf
        self._unsaid = False

    def show(self, event: Event) -> None:
        standing, name = self._standing, event["event"]
        standing.happen(event)
        if notices := _notices(standing, event):
            self._write(*notices)
        if name in ("verifying", "server_started", "enrolled", "round_committed"):
            self._unsaid = True
            few = name == "round_committed" and standing.rounds <= FEW_ROUNDS
            all_there = standing.starting and len(standing.enrolled) == standing.population
            if few or all_there or self._clock.monotonic() >= self._next_at:
                self._say()

    def close(self) -> None:
        self._say()
        if ending := ending_of(self._standing):
            self._write(ending)

    def _say(self) -> None:
        if self._unsaid and not self._quiet:
            standing = self._standing
            self._write(", ".join([_stage(standing), *facts_of(standing), *time_left(standing)]))
            self._next_at = self._clock.monotonic() + _LINE_EVERY_S
        self._unsaid = False

    def _write(self, *lines: str) -> None:
        self._stream.write("".join(f"{self._title}: {line}\n" for line in lines))
        self._stream.flush()


class LivePanel:
    """A panel at the bottom of a terminal, drawn a few times per second by rich's thread."""

    def __init__(self, stream: TextIO, *, title: str) -> None:
        self._title = Text(clean(title), style="bold")
        self._standing = RunProgress()
        self._console = Console(file=stream, force_terminal=True)
        self._live = Live(
            console=self._console, get_renderable=self._panel, refresh_per_second=_FRAMES_PER_S
        )
        self._live.start()

    def show(self, event: Event) -> None:
        self._standing.happen(event)
        for notice in _notices(self._standing, event):
            self._console.print(Text(notice, style="yellow"))

    def close(self) -> None:
        self._live.stop()
        if self._standing.status is None and (ending := ending_of(self._standing)):
            self._console.print(Text(ending, style="yellow"))

    def _panel(self) -> Panel:
        standing = self._standing
        done, total = standing.round, standing.rounds
        if standing.starting:
            done, total = len(standing.enrolled), standing.population
        line = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, 1, None):
            line.add_column(ratio=ratio, no_wrap=True)
        bar = ProgressBar(total=max(total, 1), completed=done)
        line.add_row(_stage(standing), bar, Text(standing.status or "".join(time_left(standing))))
        facts = Text("   ".join(facts_of(standing)), style="dim")
        width = min(self._console.width, _WIDTH)
        return Panel(Group(line, facts), title=self._title, title_align="left", width=width)


def _notices(standing: RunProgress, event: Event) -> list[str]:
    """What a person should know of `event`, one line each; taken out of `standing`."""
    notices = [*standing.notices]
    standing.notices.clear()
    if event["event"] == "warned":
        by, warning = clean(event["by"]), clean(event["warning"])
        notices.append(f"round {event['round']}: {by}: {warning}")
    return notices


def _stage(standing: RunProgress) -> str:
    if standing.measuring:
        return f"measuring links: {standing.measuring}"
    if not standing.starting:
        return f"round {standing.round} of {standing.rounds}"
    if standing.population:
        return f"{len(standing.enrolled)} of {standing.population} devices enrolled"
    return "starting"


def facts_of(standing: RunProgress) -> list[str]:
    if standing.starting:
        return [f"{bytes_text(standing.arriving)} received"] if standing.arriving else []
    carried = standing.bytes_up + standing.bytes_down + standing.arriving
    facts = [
        *_quality(standing),
        f"{standing.folded} of {standing.called} folded" if standing.called else "",
        "" if standing.status else f"{len(standing.present)} of {standing.population} present",
        f"{standing.empty} rounds empty" if standing.empty else "",
        bytes_text(carried),
    ]
    return [fact for fact in facts if fact]


def _quality(standing: RunProgress) -> list[str]:
    if standing.loss is None:
        return []
    older = standing.evaluated_round != standing.round
    of_round = f" (round {standing.evaluated_round})" if older else ""
    quality = [f"loss {number_text(standing.loss)}{of_round}"]
    if standing.accuracy is not None:
        quality.append(f"accuracy {percent_text(standing.accuracy)}")
    return quality


def time_left(standing: RunProgress) -> list[str]:
    if not standing.left_s:
        return []
    seconds = math.ceil(standing.left_s)
    return [f"about {f'{seconds} s' if seconds < 60 else seconds_text(seconds)} left"]


def ending_of(standing: RunProgress) -> str:
    """The last line; empty when nothing began."""
    if standing.status is None:
        return f"no end was recorded; {_stage(standing)}" if standing.population else ""
    how = f"{standing.status}: {standing.detail or f'{standing.round} rounds'}"
    traffic = f"{bytes_text(standing.bytes_up)} up, {bytes_text(standing.bytes_down)} down"
    spent = f"{seconds_text(standing.seconds)} in rounds"
    return ", ".join([how, *_quality(standing), spent, traffic])
