"""Schedules of what goes wrong in a run, and the life records that follow from them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.common.life_record import LifeRecord, LifeRow, life_record

Cell = tuple[int, str]
"""A round and a device that it calls."""


class Divisions(NamedTuple):
    """What is known of a scenario before it is played, and decides which families it has.

    Attributes:
        groups: the enrolled clients of each group that has any.
        classes: by label, the clients that have more examples of it than of any other; empty if the
            examples have no labels.
        outlives_round: whether an update may count in a later round than that of its call.
    """

    groups: Mapping[str, Sequence[str]]
    classes: Mapping[str, Sequence[str]]
    outlives_round: bool


class FaultlessRun(NamedTuple):
    """The run without a schedule, as families see it.

    Attributes:
        cells: the calls whose updates count, in the order of rounds.
        rounds: the number of rounds.
        limit: how many of the cells a schedule may strike.
        divisions: how its devices are divided.
    """

    cells: Sequence[Cell]
    rounds: int
    limit: int
    divisions: Divisions

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        return self.divisions.groups

    @property
    def classes(self) -> Mapping[str, Sequence[str]]:
        return self.divisions.classes

    @property
    def clients(self) -> list[str]:
        """All devices, in the order of the population."""
        return [client for clients in self.groups.values() for client in clients]


class FaultSchedule(NamedTuple):
    """What goes wrong.

    Attributes:
        cells: the calls that it strikes, sorted.
        delay: 0: the devices are away; otherwise their updates count so many rounds later.
    """

    cells: tuple[Cell, ...]
    delay: int = 0


def schedule(cells: Sequence[Cell] | frozenset[Cell], delay: int = 0) -> FaultSchedule:
    """Make a schedule of cells in any order."""
    return FaultSchedule(tuple(sorted(cells)), delay)


def limit_of(budget: float, cells: int) -> int:
    """How many of so many cells a budget, a share of them, allows to strike."""
    # Without the small allowance, 0.29 * 100 = 28.999999999999996 would strike 28.
    return int(budget * cells + 1e-9)


def course_of(record: LifeRecord, budget: float, divisions: Divisions) -> FaultlessRun:
    """The course of the run that a record is of.

    Args:
        budget: the share of the cells that a schedule may strike.
    """
    cells = [(row.round, row.client) for row in record.rows if row.counted is not None]
    limit = limit_of(budget, len(cells))
    return FaultlessRun(cells, len(record.header.rounds), limit, divisions)


def struck(record: LifeRecord, schedule: FaultSchedule) -> LifeRecord:
    """The record of the same run, in which a schedule acts."""
    cells, header = frozenset(schedule.cells), record.header
    rows = [
        _struck(row, schedule.delay, len(header.rounds))
        if (row.round, row.client) in cells
        else row
        for row in record.rows
    ]
    what = f"{len(cells)} late by {schedule.delay} rounds" if schedule.delay else len(cells)
    source = f"{header.source}, with {what} absences of a worst case"
    if schedule.delay:
        rows = _without_calls_while_busy(rows, cells)
        source = f"{header.source}, with {what} in a worst case"
    return life_record(source, header.clock, header.devices, header.rounds, rows)


def _struck(row: LifeRow, delay: int, rounds: int) -> LifeRow:
    if not delay:
        return _away(row)
    counted = (row.counted or row.round) + delay
    return row._replace(counted=counted, staleness=None) if counted <= rounds else _away(row)


def _without_calls_while_busy(rows: Sequence[LifeRow], late: frozenset[Cell]) -> list[LifeRow]:
    """A device whose update comes late cannot be called until then."""
    busy_until: dict[str, int] = {}
    kept = []
    for row in rows:
        if row.counted is not None and row.round <= busy_until.get(row.client, 0):
            row = _away(row)
        if row.counted is not None and (row.round, row.client) in late:
            busy_until[row.client] = row.counted
        kept.append(row)
    return kept


def _away(row: LifeRow) -> LifeRow:
    """What is recorded of a device that cannot be reached; its covariates are still known."""
    return LifeRow(
        row.round,
        row.client,
        "decline",
        "offline",
        called_s=row.called_s,
        state=row.state,
        x=row.x,
        x_age_s=row.x_age_s,
    )
