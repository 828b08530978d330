"""Plays runs with schedules in virtual time, in processes beside this one."""

import math
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.garbage import keep_what_is_left
from muster.common.life_record import LifeRecord, write_life
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.laboratory.worst_case.measure import FinalMeasure
from muster.laboratory.worst_case.schedule import FaultSchedule, struck
from muster.simulation.scratch import scratch_folder
from muster.simulation.whole_run import simulate_run


class Player(NamedTuple):
    """Plays the run of a scenario with a schedule.

    Attributes:
        scenario: the file of the scenario.
        changes: what is changed in it.
        record: the life record of the run without a schedule.
    """

    scenario: Path
    changes: Sequence[str | tuple[str, Any]]
    data: str | None
    record: LifeRecord
    measure: FinalMeasure

    def play(self, schedule: FaultSchedule) -> float:
        """The measure at the end of the run; NaN if its model has diverged."""
        with scratch_folder() as scratch:
            life = scratch / "life.csv"
            write_life(life, struck(self.record, schedule))
            run = scratch / "run"
            changes = [*self.changes, *as_played(life)]
            scenario = _in_packs(read_scenario(self.scenario, changes, self.data))
            status = simulate_run(scenario, run)
            return self.measure.value(run) if status == "completed" else math.nan


def as_played(life: Path) -> list[tuple[str, Any]]:
    """The settings with which a scenario is played from a record, and measured at its end."""
    return [("life", {"record": str(life)}), ("clock.kind", "rounds"), ("clock.scale", 1.0)]


def _in_packs(scenario: Scenario) -> Scenario:
    """The scenario with a process for each group, if it can be combined with that. It is played in
    less time and has the same model. What other numbers depend on it, no search asks for."""
    if scenario.training.together > 1:
        return scenario  # sums would have other roundings
    values = scenario.model_dump(exclude_none=True)
    for group in values["groups"]:
        group["devices_per_process"] = group["count"]
    try:
        return validate(Scenario, values, scenario.name)
    except ConfigError:  # such as a fault that sends an update again, which packs do not keep
        return scenario


class Plays:
    """Plays schedules, several at a time."""

    def __init__(self, player: Player, pool: ProcessPoolExecutor | None) -> None:
        self._player = player
        self._pool = pool

    def __call__(self, schedules: Sequence[FaultSchedule]) -> Iterator[float]:
        """Yield the measure of each schedule."""
        if self._pool is None:
            return map(self._player.play, schedules)
        return self._pool.map(_play, schedules)


@contextmanager
def playing(player: Player, processes: int) -> Iterator[Plays]:
    """Start the processes that play. With one, this process plays itself."""
    if processes == 1:
        yield Plays(player, None)
        return
    # Each process starts afresh: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(player,))
    try:
        yield Plays(player, pool)
    finally:
        pool.shutdown(cancel_futures=True)


_PLAYER: list[Player] = []
"""The player of a process that plays."""


def _begin(player: Player) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the search, which ends this process
    _PLAYER.append(player)


def _play(schedule: FaultSchedule) -> float:
    measured = _PLAYER[0].play(schedule)
    keep_what_is_left()
    return measured
