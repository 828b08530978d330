"""Tells how several runs get on: how each ended, and how long the rest will take."""

from collections.abc import Callable, Iterable, Sequence

from muster.emulator.comparison.run_set import Planned
from muster.emulator.records.summary import clean, seconds_text

Say = Callable[[str], None]
"""Called with each line."""


class Pace:
    """The remaining seconds, corrected by the measured pace.

    Args:
        expected: expected seconds of every run that is still to be done.
        at_once: number of runs at the same time.
    """

    def __init__(self, expected: Iterable[float], at_once: int = 1) -> None:
        self._left = list(expected)
        self._at_once = at_once
        self._done = self._took = 0.0

    def done(self, expected_s: float, took_s: float) -> None:
        """Record that a run that was expected to take `expected_s` took `took_s`."""
        self._left.remove(expected_s)
        self._done += expected_s
        self._took += took_s

    @property
    def left_s(self) -> float:
        """Seconds until the last run has ended, at the pace so far."""
        pace = self._took / self._done if self._done > 0 else 1.0
        return pace * sum(self._left) / self._at_once


class ProgressReporter:
    """Reports how each run ended and how long the rest will take, and keeps reasons of failures.

    Attributes:
        problems: title of a run to the reason why it has no result.
    """

    def __init__(
        self, runs: Sequence[Planned], missing: Sequence[Planned], at_once: int, say: Say
    ) -> None:
        self._numbers = {run.folder: number for number, run in enumerate(runs, 1)}
        self._total = len(runs)
        self._left = len(missing)
        self._pace = Pace([run.expected_s for run in missing], at_once)
        self._say = say
        self.problems: dict[str, str] = {}

    def title(self, planned: Planned) -> str:
        """For example "[7/40] A fedipw strength=1.5 seed 101"."""
        return f"[{self._numbers[planned.folder]}/{self._total}] {planned.title}"

    def ended(self, planned: Planned, status: str, problem: str, took_s: float) -> None:
        self._left -= 1
        self._pace.done(planned.expected_s, took_s)
        how = "" if status == "completed" else f" {status}"
        if problem:
            self.problems[planned.title] = problem
            how += f" ({clean(problem.partition(chr(10))[0])})"
        left = f"; about {seconds_text(round(self._pace.left_s))} left" if self._left else ""
        self._say(f"{self.title(planned)},{how and f'{how},'} {seconds_text(took_s)}{left}")
