"""The counts of a group while the rounds of a plan are played."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.client.life.battery import radio_seconds
from muster.client.life.energy import Phases, energy_j
from muster.client.life.states import VERDICTS
from muster.common.seeds import FloatArray, IntArray
from muster.emulator.planning.group_lives import CallResults, GroupLives
from muster.emulator.planning.result import Counting, GroupPlan
from muster.emulator.scenario.settings import Group


@dataclass(slots=True)
class _Row:
    """The counts of one round.

    Attributes:
        charge: the sum over the enrolled devices.
        codes: number of calls by their results, in the order of VERDICTS.
        staleness: of every update that counts in the round.
    """

    codes: IntArray = field(default_factory=lambda: np.zeros(len(VERDICTS), dtype=np.int64))
    available: int = 0
    charge: float = 0.0
    called: int = 0
    accepted: int = 0
    late: int = 0
    too_stale: int = 0
    staleness: list[int] = field(default_factory=list)
    joules: float = 0.0


class GroupTally:
    """Counts what becomes of the calls of a group. Rounds have numbers from 1.

    Attributes:
        open: number of assignments that are open at the end.

    Args:
        clients: the enrolled devices of the group.
        voltage: nominal voltage of batteries; None: no energy is computed.
    """

    def __init__(self, group: Group, clients: Sequence[str], voltage: float | None = None) -> None:
        self._voltage = voltage
        self._network: IntArray | None = None
        self._results: CallResults | None = None
        self.open = 0
        self._group = group
        self._clients = list(clients)
        self._chance = np.zeros(len(clients))
        self._fates = np.zeros((len(clients), len(VERDICTS)), dtype=np.int64)
        self._rows: list[_Row] = []

    def begin(self, round: int, step: int, lives: GroupLives | None) -> None:
        """Count the states of devices when a round opens.

        Args:
            step: the step of their lives at which it opens.
            lives: some devices of the group; None if it has none.
        """
        if round > len(self._rows):
            self._rows.append(_Row())
        if lives is None:
            return
        row, look = self._rows[round - 1], lives.devices.look(step)
        row.available += int(np.count_nonzero(look.available))
        row.charge += float(look.charge.sum())
        self._network = look.network
        self._chance[lives.first : lives.first + len(lives.members)] += lives.devices.chance(step)

    def calls(self, round: int, lives: GroupLives, results: CallResults) -> None:
        """Count the calls of a round, and what the devices answer."""
        row, codes = self._rows[round - 1], results.codes
        row.called += len(codes)
        row.accepted += int(np.count_nonzero(results.accepted))
        row.codes += np.bincount(codes, minlength=len(VERDICTS))
        self._fates[lives.first + results.called, codes] += 1
        self._results = results

    def end(self, round: int, lasted_s: float) -> None:
        """Count the energy of the calls of a round, which has lasted so many scenario seconds."""
        results, self._results = self._results, None
        if self._voltage is not None and self._network is not None and results is not None:
            joules = self._joules(self._voltage, self._network, results, lasted_s)
            self._rows[round - 1].joules += joules

    def _joules(
        self, voltage: float, network: IntArray, results: CallResults, lasted_s: float
    ) -> float:
        """The energy of the calls that devices accepted, as `records.energy` has it of a run."""
        working = results.called[results.accepted]
        effort, share = results.effort, results.verdict.share[working]
        down_s, up_s = radio_seconds(network, effort)
        kept_s = np.maximum(lasted_s, effort.work_s[working] * share)
        train_s, down_s, up_s = (each[working] * share for each in (effort.train_s, down_s, up_s))
        seconds = Phases(train_s, down_s, up_s, kept_s)
        phases = energy_j(self._group.device, voltage, network[working], seconds)
        return math.fsum(float(phase.sum()) for phase in phases)

    def fold(self, round: int, client: str, staleness: int) -> None:
        """Count the update of a client that counts in a round."""
        self._rows[round - 1].staleness.append(staleness)

    def late(self, round: int, updates: int = 1) -> None:
        """Count updates that miss their deadline, by the round of their call."""
        self._rows[round - 1].late += updates

    def too_stale(self, round: int) -> None:
        """Count an update that would be older than the mode allows, by the round of its call."""
        self._rows[round - 1].too_stale += 1

    def plan(self, outlives_round: bool) -> GroupPlan:
        """The plan of the group over all rounds.

        Args:
            outlives_round: whether updates may outlive their round.
        """
        rows, enrolled = self._rows, len(self._clients)
        codes = np.array([row.codes for row in rows], dtype=np.float64)
        return GroupPlan(
            self._group.name,
            self._group.count,
            enrolled=enrolled,
            available=_numbers([row.available for row in rows]),
            called=_numbers([row.called for row in rows]),
            accepted=_numbers([row.accepted for row in rows]),
            delivered=codes[:, 0],
            late=_numbers([row.late for row in rows]),
            charge=_numbers([row.charge for row in rows]) / max(1, enrolled),
            reasons={
                reason: codes[:, code] for code, reason in enumerate(VERDICTS) if reason is not None
            },
            clients=self._clients,
            chance=self._chance / len(rows),
            fates=self._fates,
            counting=self._counting() if outlives_round else None,
            joules=None if self._voltage is None else _numbers([row.joules for row in rows]),
        )

    def _counting(self) -> Counting:
        ages = [row.staleness for row in self._rows]
        return Counting(
            folded=np.array([len(of_round) for of_round in ages]),
            stale=np.array([sum(age > 0 for age in of_round) for of_round in ages]),
            staleness=np.array([sum(of_round) for of_round in ages]),
            largest=np.array([max(of_round, default=0) for of_round in ages]),
            too_stale=np.array([row.too_stale for row in self._rows]),
            open=self.open,
        )


def _numbers(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64)
