"""Who may transfer in a round where a group has few channel slots; no I/O and no clock in it.

    overflow          contend                                          take, give
    collide, subset   answered when all have spoken: `lines.granted`   granted at once
    queue             answered at once: whoever is active may          granted while one is free,
                                                                       else in turn
    inactive          false, at once

Rule 1: what was decided stays. A device that asks again gets the same answer, whatever it says; the
decisions of the last two rounds are kept. In a round before them nobody may, nor does anybody who
waits there yet.

Rule 2: those who wait for a slot get it in the order in which they asked; those who asked at the
same instant, in the order of `lines.turns`.
"""

from dataclasses import dataclass, field

from muster.common.lines import SharedLine, granted, turns

_ROUNDS_KEPT = 2

Whose = tuple[int, str]
"""Round and client."""


@dataclass(slots=True)
class _Contest:
    words: dict[str, bool] = field(default_factory=dict)
    decided: frozenset[str] | None = None


class SlotAllocator:
    """The slots of a group."""

    def __init__(self, shared: SharedLine, seed: int, group: str) -> None:
        self._shared, self._seed, self._group = shared, seed, group
        self._contests: dict[int, _Contest] = {}
        self._holders: set[Whose] = set()
        self._waiting: list[tuple[float, Whose]] = []

    def contend(self, round: int, client: str, active: bool, of: int) -> dict[Whose, bool]:
        """A device says whether it wants to transfer.

        Args:
            of: devices of the group that speak in this round.

        Returns:
            What is decided by now, for this device and, if it was the last to speak, for the
            others of the round too.
        """
        over = self._begin(round)
        return over | self._decided(round, client, active, of)

    def take(self, round: int, client: str, at: float) -> list[Whose]:
        """A device wants a slot; who gets one by that, if anybody.

        Args:
            at: any clock's seconds; decides who came first.
        """
        whose = (round, client)
        if whose in self._holders:
            return [whose]
        if all(whose != waiting for _, waiting in self._waiting):
            self._waiting.append((at, whose))
        return self._filled()

    def give(self, round: int, client: str) -> list[Whose]:
        """A device needs its slot no more, or waits no more; who gets one by that."""
        whose = (round, client)
        self._holders.discard(whose)
        self._waiting = [entry for entry in self._waiting if entry[1] != whose]
        return self._filled()

    def _decided(self, round: int, client: str, active: bool, of: int) -> dict[Whose, bool]:
        contest = self._contests.get(round)
        if contest is None:
            return {(round, client): False}
        if contest.decided is not None and not self._at_once:
            return {(round, client): client in contest.decided}
        contest.words.setdefault(client, active)
        active = contest.words[client]
        if self._at_once:
            return {(round, client): active}
        if len(contest.words) >= of:
            able = [each for each, wants in contest.words.items() if wants]
            contest.decided = granted(self._shared, self._seed, self._group, round, able)
            return {(round, each): each in contest.decided for each in contest.words}
        return {} if active else {(round, client): False}

    @property
    def _at_once(self) -> bool:
        return self._shared.slots is None or self._shared.overflow == "queue"

    def _begin(self, round: int) -> dict[Whose, bool]:
        """Remember a round, unless it is long over; what that decides in rounds before."""
        if round in self._contests:
            return {}
        if len(self._contests) >= _ROUNDS_KEPT and round < min(self._contests):
            return {}
        self._contests[round] = _Contest()
        decided: dict[Whose, bool] = {}
        for over in sorted(self._contests)[:-_ROUNDS_KEPT]:
            contest = self._contests.pop(over)
            if contest.decided is None:
                decided |= {(over, client): False for client in contest.words}
        return decided

    def _filled(self) -> list[Whose]:
        slots = self._shared.slots if self._shared.overflow == "queue" else None
        found = []
        while self._waiting and (slots is None or len(self._holders) < slots):
            ranks = {
                round: self._ranks(round) for round in {whose[0] for _, whose in self._waiting}
            }
            first = min(self._waiting, key=lambda entry: (entry[0], ranks[entry[1][0]][entry[1]]))
            self._waiting.remove(first)
            self._holders.add(first[1])
            found.append(first[1])
        return found

    def _ranks(self, round: int) -> dict[Whose, int]:
        """The order of turns among those who contend in a round, and who else waits for a slot."""
        contest = self._contests.get(round, _Contest())
        clients = {each for each, wants in contest.words.items() if wants} | {
            client for _, (of, client) in self._waiting if of == round
        }
        order = turns(self._seed, self._group, round, clients)
        return {(round, client): rank for rank, client in enumerate(order)}
