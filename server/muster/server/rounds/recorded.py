"""What every grade of playing takes from a life record: its rounds, and what devices report."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from muster.common.life_record import LifeRecord, LifeRow, Report
from muster.server.rounds.life import FleetLife


class RecordedLife(FleetLife):
    """The life of a fleet by a record."""

    recorded = True

    def __init__(self, record: LifeRecord) -> None:
        self.rounds = len(record.header.rounds)
        self._rows = defaultdict[int, dict[str, LifeRow]](dict)
        places = {device.client: i for i, device in enumerate(record.header.devices)}
        for row in sorted(record.rows, key=lambda row: (row.round, places[row.client])):
            self._rows[row.round][row.client] = row

    def reported(self, names: Sequence[str]) -> Sequence[str]:
        return ()

    def report(self, round: int, client: str) -> Report | None:
        return self._rows[round][client].report

    def rows(self, round: int) -> Mapping[str, LifeRow]:
        """What is recorded of a round, by client, in the order of the population."""
        return self._rows[round]

    def in_order(self) -> Iterator[LifeRow]:
        """All rows, in the order of rounds, and of the population in each."""
        return (row for rows in self._rows.values() for row in rows.values())
