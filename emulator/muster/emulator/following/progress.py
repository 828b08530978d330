"""Shows the progress of a run while it is running, from the events of its journal.

Rule 1: an event costs only a table look-up and a little arithmetic. However many events come,
displays draw only a few times per second, because a person sees no difference beyond that.

Rule 2: a stream that is not a terminal gets plain lines without control characters. Names that came
from peers are cleaned before they are shown anywhere.
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
from muster.emulator.following.run_progress import Event, RunProgress
from muster.emulator.records.summary import (
    bytes_text,
    clean,
    number_text,
    percent_text,
    seconds_text,
)

FEW_ROUNDS = 20
"""A run of up to this many rounds gets a plain line for each round, however fast they are."""

_LINE_EVERY_S = 1.0
_FRAMES_PER_S = 4
_WIDTH = 100


class Progress(Protocol):
    """A display of a run's progress."""

    def show(self, event: Event) -> None:
        """Update the display with `event`, a line of the journal; unknown events are ignored."""
        ...

    def close(self, *, goes_on: bool = False) -> None:
        """Show what is not shown yet and restore the stream. Nothing may be shown afterwards.

        Args:
            goes_on: the run has not ended; only nobody watches it any more.
        """
        ...


def progress(stream: TextIO, clock: Clock, *, title: str, quiet: bool = False) -> Progress:
    """The display that suits `stream`: a live panel on a terminal, otherwise plain lines.

    Args:
        title: the name of the run to show.
        quiet: show only plain lines, and only notices and the end of the run.
    """
    if quiet or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return Lines(stream, clock, title=title, quiet=quiet)
    return LivePanel(stream, title=title)


class LenientProgress:
    """Shows a run on another display until its stream fails, so that a full disk or a closed
    terminal does not end the run.

    A closed pipe does end the run (`muster run … 2>&1 | head`), as it ends any program.
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

    def close(self, *, goes_on: bool = False) -> None:
        if self._display is not None:
            with suppress(OSError):
                self._display.close(goes_on=goes_on)


class Lines:
    """Shows a run as plain lines. With few rounds there is a line for each, with many about one per
    second; the last is always shown."""

    def __init__(self, stream: TextIO, clock: Clock, *, title: str, quiet: bool = False) -> None:
        self._stream, self._clock = stream, clock
        self._title, self._quiet = clean(title), quiet
        self._run_progress = RunProgress()
        self._next_at = -math.inf
        self._unsaid = False

    def show(self, event: Event) -> None:
        state, name = self._run_progress, event["event"]
        state.happen(event)
        if notices := _notices(state, event):
            self._write(*notices)
        if name in ("verifying", "server_started", "enrolled", "round_committed"):
            self._unsaid = True
            few = name == "round_committed" and state.rounds <= FEW_ROUNDS
            all_there = state.starting and len(state.enrolled) == state.population
            if few or all_there or self._clock.monotonic() >= self._next_at:
                self._say()

    def close(self, *, goes_on: bool = False) -> None:
        self._say()
        if ending := ending_of(self._run_progress, goes_on):
            self._write(ending)

    def _say(self) -> None:
        if self._unsaid and not self._quiet:
            state = self._run_progress
            self._write(", ".join([stage_of(state), *facts_of(state), *time_left(state)]))
            self._next_at = self._clock.monotonic() + _LINE_EVERY_S
        self._unsaid = False

    def _write(self, *lines: str) -> None:
        self._stream.write("".join(f"{self._title}: {line}\n" for line in lines))
        self._stream.flush()


class LivePanel:
    """Shows a run as a panel at the bottom of a terminal. A thread of rich draws it a few times per
    second."""

    def __init__(self, stream: TextIO, *, title: str) -> None:
        self._title = Text(clean(title), style="bold")
        self._run_progress = RunProgress()
        self._console = Console(file=stream, force_terminal=True)
        self._live = Live(
            console=self._console, get_renderable=self._panel, refresh_per_second=_FRAMES_PER_S
        )
        self._live.start()

    def show(self, event: Event) -> None:
        self._run_progress.happen(event)
        for notice in _notices(self._run_progress, event):
            self._console.print(Text(notice, style="yellow"))

    def close(self, *, goes_on: bool = False) -> None:
        self._live.stop()
        state = self._run_progress
        if state.status is None and (ending := ending_of(state, goes_on)):
            self._console.print(Text(ending, style="yellow"))

    def _panel(self) -> Panel:
        state = self._run_progress
        done, total = state.done, state.rounds
        if state.starting:
            done, total = len(state.enrolled), state.population
        line = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, 1, None):
            line.add_column(ratio=ratio, no_wrap=True)
        bar = ProgressBar(total=max(total, 1), completed=done)
        line.add_row(stage_of(state), bar, Text(state.status or "".join(time_left(state))))
        facts = Text("   ".join(facts_of(state)), style="dim")
        width = min(self._console.width, _WIDTH)
        return Panel(Group(line, facts), title=self._title, title_align="left", width=width)


def _notices(state: RunProgress, event: Event) -> list[str]:
    """The notices of `event` for a person, one line each. They are removed from `state`."""
    notices = [*state.notices]
    state.notices.clear()
    if event["event"] == "warned":
        by, warning = clean(event["by"]), clean(event["warning"])
        when = f"round {event['round']}: " if event["round"] else ""
        notices.append(f"{when}{by}: {warning}")
    return notices


def stage_of(state: RunProgress) -> str:
    if state.measuring:
        return f"measuring links: {state.measuring}"
    if state.waiting:
        return state.waiting
    if not state.starting:
        return f"{state.counts[:-1]} {state.done} of {state.rounds}"
    if state.population:
        return f"{len(state.enrolled)} of {state.population} devices enrolled"
    return "starting"


def facts_of(state: RunProgress) -> list[str]:
    if state.starting:
        return [f"{bytes_text(state.arriving)} received"] if state.arriving else []
    carried = state.bytes_up + state.bytes_down + state.arriving
    facts = [
        *_quality(state),
        "" if state.epsilon is None else f"ε {number_text(state.epsilon)}",
        f"{state.folded} of {state.called} folded" if state.called else "",
        "" if state.status else f"{len(state.present)} of {state.population} present",
        f"{state.empty} rounds empty" if state.empty else "",
        bytes_text(carried),
    ]
    return [fact for fact in facts if fact]


def _quality(state: RunProgress) -> list[str]:
    if state.loss is None:
        return []
    older = f" ({' '.join(map(str, state.evaluated))})" if state.evaluated else ""
    quality = [f"loss {number_text(state.loss)}{older}"]
    if state.accuracy is not None:
        quality.append(f"accuracy {percent_text(state.accuracy)}")
    return quality


def time_left(state: RunProgress) -> list[str]:
    if not state.left_s:
        return []
    seconds = math.ceil(state.left_s)
    return [f"about {f'{seconds} s' if seconds < 60 else seconds_text(seconds)} left"]


def ending_of(state: RunProgress, goes_on: bool = False) -> str:
    """The last line; empty if nothing has begun."""
    if state.status is None and goes_on:
        return "the run goes on"
    if state.status is None:
        return f"no end was recorded; {stage_of(state)}" if state.population else ""
    how = f"{state.status}: {state.detail or f'{state.done} {state.counts}'}"
    traffic = f"{bytes_text(state.bytes_up)} up, {bytes_text(state.bytes_down)} down"
    spent = f"{seconds_text(state.seconds)} in rounds on this machine"
    return ", ".join([how, *_quality(state), spent, traffic])
