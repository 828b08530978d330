"""Recorded answers and durations: the server selects and decides anew whose updates count, and a
life record says what the selected devices answer, and how long their work takes."""

from collections.abc import Callable, Collection, Iterator, Sequence

from muster.common.exchange import Decision, Reason
from muster.common.life_record import LifeRecord, LifeRow
from muster.server.rounds.recorded import RecordedLife


class RecordedAnswers(RecordedLife):
    """The answers and durations of a record.

    A device that the record does not know in a round, because it was not called, declines as
    offline.

    Args:
        outlives_round: whether an update may count in a later round than that of its call. Then a
            server does not ask devices that it knows to be away, so a device that declined is away
            until the record has it again.
    """

    def __init__(self, record: LifeRecord, outlives_round: bool) -> None:
        super().__init__(record)
        self._away = dict[int, Sequence[LifeRow]]()
        self._gone = dict[int, set[str]]()
        gone = set[str]()
        for number in range(1, int(self.rounds) + 1):
            answers = {client: row.answer for client, row in self.rows(number).items()}
            self._gone[number] = {client for client, a in answers.items() if a == "absent"}
            gone -= answers.keys()
            if outlives_round:
                self._gone[number] |= gone
            gone |= {client for client, answer in answers.items() if answer == "decline"}

    def selected(
        self,
        round: int,
        reachable: Collection[str],
        usual: Callable[[Collection[str]], Sequence[str]],
    ) -> Sequence[str]:
        rows = self.rows(round)
        chosen = usual([client for client in reachable if client not in self._gone[round]])
        fates = [rows.get(client, unknown(round, client)) for client in chosen]
        absent = [row for row in rows.values() if row.answer == "absent"]
        self._away[round] = [*(row for row in fates if not row.trained), *absent]
        return [row.client for row in fates if row.trained]

    def called(self, round: int, usual: int) -> int:
        return usual + sum(row.answer != "absent" for row in self._away[round])

    def accepted(self, round: int, usual: int) -> int:
        return usual + sum(row.answer in ("accept", "abort") for row in self._away[round])

    def modelled_s(self, round: int, client: str, usual: float) -> float:
        row = self.rows(round).get(client)
        return usual if row is None else row.work_s

    def uncalled(self, round: int, called: Collection[str]) -> Iterator[LifeRow]:
        return iter(self._away[round])


def unknown(round: int, client: str) -> LifeRow:
    """What happens to a device of which the record knows nothing in a round."""
    return LifeRow(round, client, Decision.DECLINE.value, Reason.OFFLINE.value)
