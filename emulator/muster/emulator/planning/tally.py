"""The counts of a group while the rounds of a plan are played."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from muster.client.life.states import VERDICTS
from muster.emulator.planning.group_lives import GroupLives
from muster.emulator.planning.result import Counting, GroupPlan
from muster.emulator.scenario.settings import Group


@dataclass(slots=True)
class _Row:
    """The counts of one round.

    Attributes:
        codes: number of calls by their results, indices into VERDICTS.
        staleness: of every update that counts in the round.
    """

    available: int
    charge: float
    called: int
    accepted: int = 0
    late: int = 0
    too_stale: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    staleness: list[int] = field(default_factory=list)


class GroupTally:
    """Counts what becomes of the calls of a group.

    Attributes:
        open: number of assignments that are open at the end.

    Args:
        lives: the enrolled devices of the group; None if there are none.
    """

    def __init__(self, group: Group, lives: GroupLives | None) -> None:
        self.open = 0
        self._group = group
        self._lives = lives
        self._clients = [] if lives is None else lives.clients
        self._chance = np.zeros(len(self._clients))
        self._fates = np.zeros((len(self._clients), len(VERDICTS)), dtype=np.int64)
        self._rows: list[_Row] = []

    def begin(self, step: int, called: int) -> None:
        """Begin the next round, which opens at a step of the devices' lives.

        Args:
            called: number of devices that it calls.
        """
        if self._lives is None:
            self._rows.append(_Row(0, 0.0, 0))
            return
        look = self._lives.devices.look(step)
        charge = float(look.charge.mean())
        self._rows.append(_Row(int(np.count_nonzero(look.available)), charge, called))
        self._chance += self._lives.devices.chance(step)

    def answer(self, place: int, code: int, accepted: bool) -> None:
        """Count an answer of this round; `code` is an index into VERDICTS."""
        self._fates[place, code] += 1
        self._rows[-1].codes[code] += 1
        self._rows[-1].accepted += accepted

    def fold(self, staleness: int) -> None:
        """Count an update that counts in this round."""
        self._rows[-1].staleness.append(staleness)

    def late(self, round: int) -> None:
        """Count an update that misses its deadline, by the round of its call."""
        self._rows[round - 1].late += 1

    def too_stale(self, round: int) -> None:
        """Count an update that would be older than the mode allows, by the round of its call."""
        self._rows[round - 1].too_stale += 1

    def plan(self, outlives_round: bool) -> GroupPlan:
        """The plan of the group over all rounds.

        Args:
            outlives_round: whether updates may outlive their round.
        """
        rows, of_group = self._rows, [row.staleness for row in self._rows]
        counting = Counting(
            folded=np.array([len(ages) for ages in of_group]),
            stale=np.array([sum(age > 0 for age in ages) for ages in of_group]),
            staleness=np.array([sum(ages) for ages in of_group]),
            largest=np.array([max(ages, default=0) for ages in of_group]),
            too_stale=np.array([row.too_stale for row in rows]),
            open=self.open,
        )
        return GroupPlan(
            self._group.name,
            self._group.count,
            enrolled=len(self._clients),
            available=np.array([float(row.available) for row in rows]),
            called=np.array([float(row.called) for row in rows]),
            accepted=np.array([float(row.accepted) for row in rows]),
            delivered=np.array([float(row.codes[0]) for row in rows]),
            late=np.array([float(row.late) for row in rows]),
            charge=np.array([row.charge for row in rows]),
            reasons={
                reason: np.array([float(row.codes[code]) for row in rows])
                for code, reason in enumerate(VERDICTS)
                if reason is not None
            },
            clients=self._clients,
            chance=self._chance / len(rows),
            fates=self._fates,
            counting=counting if outlives_round else None,
        )
