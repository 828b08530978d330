"""Recorded arrivals: who is called in every round, and whose updates count in it, by a life record.

They take the place of selection, durations and deadlines: the server waits for everyone that it
calls, and counts an update in the round in which the recorded one counted.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from muster.common.life_record import LifeRecord, LifeRow
from muster.server.rounds.recorded import RecordedLife


class RecordedRound(NamedTuple):
    """What a record says of a round.

    Attributes:
        counted: the clients whose updates count in it.
        called, accepted: the number of devices that were called, and of those that accepted, also
            if they gave up later.
        opened_s, ended_s: scenario seconds at which it opened, and at which the next one could.
        step: the step of device life at which it opened.
    """

    counted: frozenset[str]
    called: int
    accepted: int
    opened_s: float
    ended_s: float
    step: int


class RecordedArrivals(RecordedLife):
    """The arrivals of a record.

    Args:
        outlives_round: whether an update may count in a later round than that of its call.
    """

    decides_last = True

    def __init__(self, record: LifeRecord, outlives_round: bool) -> None:
        super().__init__(record)
        self._rounds = record.header.rounds
        self._called = defaultdict[int, list[str]](list)
        self._counted = defaultdict[int, set[str]](set)
        for row in self.in_order():
            # An update that did not count leaves traces on its device. If updates may outlive their
            # round, the device could then not be called again when it was.
            if row.trained and (row.counted is not None or not outlives_round):
                self._called[row.round].append(row.client)
            if row.trained and row.counted is not None:
                self._counted[row.counted].add(row.client)

    def opening(self, round: int, opened_s: float | None, step: int) -> tuple[float | None, int]:
        recorded = self._rounds[round - 1]
        return recorded.opened_s, recorded.step

    def selected(
        self,
        round: int,
        reachable: Collection[str],
        usual: Callable[[Collection[str]], Sequence[str]],
    ) -> Sequence[str]:
        return [client for client in self.to_call(round) if client in reachable]

    def called(self, round: int, usual: int) -> int:
        return self.round(round).called

    def accepted(self, round: int, usual: int) -> int:
        return self.round(round).accepted

    def counted(
        self, round: int, arrived: Collection[str], usual: Callable[[], Collection[str]]
    ) -> Collection[str]:
        return self._counted[round].intersection(arrived)

    def next_s(self, round: int, usual: Callable[[], float]) -> float:
        return self._rounds[round - 1].ended_s

    def uncalled(self, round: int, called: Collection[str]) -> Iterator[LifeRow]:
        return (row for client, row in self.rows(round).items() if client not in called)

    def round(self, number: int) -> RecordedRound:
        """What is recorded of a round."""
        recorded = self._rounds[number - 1]
        answers = [row.answer for row in self.rows(number).values()]
        return RecordedRound(
            frozenset(self._counted[number]),
            sum(answer != "absent" for answer in answers),
            sum(answer in ("accept", "abort") for answer in answers),
            recorded.opened_s,
            recorded.ended_s,
            recorded.step,
        )

    def to_call(self, round: int) -> Sequence[str]:
        """The clients to call, in the order of the population."""
        return self._called[round]


def uncertain_calls(record: LifeRecord, outlives_round: bool) -> int:
    """The number of calls for which a device may have trained without an update that the played
    rounds know. What such training left on its device, for example a residual, is then missing.

    Args:
        outlives_round: whether an update may count in a later round than that of its call.
    """
    lost = record.header.unanswered if outlives_round else 0  # else they were made again
    return lost + sum(
        (row.outcome is None and row.answer in ("accept", "silent"))
        or (row.trained and row.counted is None and outlives_round)
        for row in record.rows
    )
