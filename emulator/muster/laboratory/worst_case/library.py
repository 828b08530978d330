"""The schedules that were played, in a file, so that a search that is repeated plays none twice."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from muster.common.errors import ConfigError
from muster.laboratory.worst_case.schedule import FaultSchedule


class Library:
    """Schedules and their measures.

    Args:
        path: a file of JSON lines; it is read if it exists.
        play: plays schedules that are not there; each is kept as soon as it was played.
        watch: called after each batch with the number of different schedules that were played.

    Raises:
        ConfigError: the file is damaged.
    """

    def __init__(
        self,
        path: Path | None,
        play: Callable[[Sequence[FaultSchedule]], Iterable[float]],
        watch: Callable[[int], None],
    ) -> None:
        self._path, self._play, self._watch = path, play, watch
        self._known = dict[FaultSchedule, float]()
        if path is not None and path.exists():
            self._known = _read(path)

    @property
    def played(self) -> int:
        """The number of different schedules that were played."""
        return len(self._known)

    def measures(self, schedules: Sequence[FaultSchedule]) -> list[float]:
        """The measure of each schedule; those that are not known are played."""
        new = [each for each in dict.fromkeys(schedules) if each not in self._known]
        for each, value in zip(new, self._play(new) if new else [], strict=True):
            self._known[each] = value
            if self._path is not None:
                line = {
                    "measure": value if math.isfinite(value) else None,
                    "delay": each.delay,
                    "cells": each.cells,
                }
                with self._path.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._watch(self.played)
        return [self._known[each] for each in schedules]


def _read(path: Path) -> dict[FaultSchedule, float]:
    found = {}
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            cells = tuple((int(round), str(client)) for round, client in line["cells"])
            value = math.nan if line["measure"] is None else float(line["measure"])
            found[FaultSchedule(cells, int(line["delay"]))] = value
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                break  # the search was killed while it wrote this line
            raise ConfigError(
                f"{path}, line {number}: expected a schedule that was played, found {text[:40]!r}; "
                f"remove the folder and search again"
            ) from None
    return found
