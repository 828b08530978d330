"""Shows the progress of a run where it was started: in a notebook, on a terminal, or as lines."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from muster.common.clock import WallClock
from muster.emulator.following.progress import (
    LenientProgress,
    Progress,
    ending_of,
    facts_of,
    progress,
    stage_of,
    time_left,
)
from muster.emulator.following.run_progress import Event, RunProgress
from muster.emulator.records.summary import clean
from muster.emulator.runs.supervisor import Show

_EVERY_S = 0.25


@contextmanager
def showing(title: str, quiet: bool) -> Iterator[Show]:
    """Show the events of a run that the body gives to the function that this yields.

    Args:
        quiet: show nothing.
    """
    if quiet:
        yield lambda event: None
        return
    found: Progress
    if in_notebook():
        from IPython.display import HTML, display

        place = display(HTML(""), display_id=True)
        found = NotebookBar(lambda html: place.update(HTML(html)), title=title)
    else:
        found = progress(sys.stderr, WallClock(), title=title)
    shown = LenientProgress(found)
    try:
        yield shown.show
    finally:
        shown.close()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """Shows a run as a bar with a line of facts. A thread draws it a few times per second, because
    the kernel of a notebook keeps what belongs to a thread that has drawn, and events come from a
    thread whose event loop ends with the run.

    Args:
        draw: replaces what is shown, by HTML.
        every_s: seconds between two drawings.
    """

    def __init__(
        self, draw: Callable[[str], object], *, title: str, every_s: float = _EVERY_S
    ) -> None:
        self._draw, self._title, self._every_s = draw, clean(title), every_s
        self._run_progress = RunProgress()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._draw_often, name="muster-bar", daemon=True)
        self._thread.start()

    def show(self, event: Event) -> None:
        self._run_progress.happen(event)

    def close(self, *, goes_on: bool = False) -> None:
        self._closed.set()
        self._thread.join()
        self._draw(self._html(ending_of(self._run_progress, goes_on)))

    def _draw_often(self) -> None:
        while not self._closed.wait(self._every_s):
            self._draw(self._html())

    def _html(self, ending: str = "") -> str:
        state = self._run_progress
        done, total = state.done, state.rounds
        if state.starting:
            done, total = len(state.enrolled), state.population
        facts = [ending] if ending else [stage_of(state), *facts_of(state), *time_left(state)]
        lines = [", ".join(facts), *map(clean, state.notices)]
        return (
            f'<div><b>{escape(self._title)}</b> <progress value="{done}" max="{max(total, 1)}">'
            f"</progress> {'<br>'.join(map(escape, lines))}</div>"
        )
