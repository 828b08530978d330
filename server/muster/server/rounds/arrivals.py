"""Recorded arrivals: who is called in every round, and whose updates count in it, by a life record.

They take the place of selection, durations and deadlines: the server waits for everyone that it
calls, and counts an update in the round in which the recorded one counted.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from muster.common.life_record import LifeRecord, LifeRow


class RecordedArrivals:
    """The arrivals of a record.

    Args:
        outlives_round: whether an update may count in a later round than that of its call.
    """

    def __init__(self, record: LifeRecord, outlives_round: bool) -> None:
        self._rounds = record.header.rounds
        self._called = defaultdict[int, list[str]](list)
        self._counted = defaultdict[int, set[str]](set)
        self._rows = defaultdict[int, dict[str, LifeRow]](dict)
        places = {device.client: i for i, device in enumerate(record.header.devices)}
        for row in sorted(record.rows, key=lambda row: (row.round, places[row.client])):
            self._rows[row.round][row.client] = row
            counted = row.round if row.outcome == "refused" else row.counted
            # An update that did not count leaves traces on its device. If updates may outlive their
            # round, the device could then not be called again when it was.
            if row.trained and (counted is not None or not outlives_round):
                self._called[row.round].append(row.client)
            if row.trained and counted is not None:
                self._counted[counted].add(row.client)

    @property
    def rounds(self) -> int:
        """The number of recorded rounds."""
        return len(self._rounds)

    def opening(self, round: int) -> tuple[float, int]:
        """Scenario seconds, and the step of device life, at which a round opens."""
        opened = self._rounds[round - 1]
        return opened.opened_s, opened.step

    def called(self, round: int) -> Sequence[str]:
        """The clients to call, in the order of the population."""
        return self._called[round]

    def counted(self, round: int) -> frozenset[str]:
        """The clients whose updates count in a round."""
        return frozenset(self._counted[round])

    def rows(self, round: int) -> Mapping[str, LifeRow]:
        """What is recorded of a round, by client."""
        return self._rows[round]
