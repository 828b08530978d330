"""Kills programs of a run with SIGKILL, at places of its journal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from muster.chaos.run_processes import kill_process, run_processes

Victim = Literal["server", "device", "gateway", "supervisor"]


class PlannedKill(NamedTuple):
    """A kill of the plan.

    Attributes:
        round: it happens when this round or a later one has opened,
        lines: and so many further lines of the journal were read.
    """

    victim: Victim
    round: int
    lines: int


class ProcessKiller:
    """Follows the journal of a run, and carries out the kills of a plan.

    The journal is read some milliseconds late, so between two lines the victim may be anywhere:
    training, uploading, folding, committing. The choice among several victims follows from the
    seed; which instant the kill hits does not.

    Attributes:
        done: the kills that were carried out, by victim.
        left: the kills that were not yet carried out, the next one last.
    """

    def __init__(self, folder: Path, kills: Sequence[PlannedKill], seed: int) -> None:
        self._folder = folder
        self._random = Random(f"victims {seed}")
        self._round = self._lines = 0
        self.done = Counter[Victim]()
        self.left = list(reversed(kills))

    def happen(self, line: Mapping[str, Any]) -> bool:
        """Take notice of a line of the journal; return whether the supervisor is to be killed."""
        if line["event"] == "ended":
            self.left.clear()
        if line["event"] == "round_opened":
            self._round = line["round"]
        if not self.left or self._round < self.left[-1].round:
            return False
        self._lines += 1
        kill = self.left[-1]
        if self._lines <= kill.lines or not (
            kill.victim == "supervisor" or self._kill(kill.victim)
        ):
            return False  # with a victim that is away, it is tried again at the next line
        self.left.pop()
        self._lines = 0
        self.done[kill.victim] += 1
        return kill.victim == "supervisor"

    def _kill(self, victim: Victim) -> bool:
        found = [each for each in run_processes(self._folder) if each.part == victim]
        return bool(found) and kill_process(self._random.choice(found), self._folder)
