"""Allocates the channel slots of a group to the devices that want to transfer in a round. This
module does no I/O and has no clock.

    overflow          contend                                          take, give
    collide, subset   answered once all have contended:                granted at once
                      `lines.granted`
    queue             answered at once: every active device may        granted while a slot is free,
                      transfer                                         else in turn

An inactive device gets the answer false at once.

Rule 1: decisions are final. A device that asks again gets the same answer, whatever it asks. The
decisions of the last two rounds are kept. In earlier rounds no device may transfer, and devices
that still wait there get the answer false.

Rule 2: waiting devices get slots in the order in which they asked. Devices that asked at the same
instant get them in the order of `lines.turns`.
"""

from dataclasses import dataclass, field

from muster.common.lines import SharedLine, granted, turns

_ROUNDS_KEPT = 2

DeviceRound = tuple[int, str]
"""A device in a round, as (round, client)."""


@dataclass(slots=True)
class _Contest:
    words: dict[str, bool] = field(default_factory=dict)
    decided: frozenset[str] | None = None


class SlotAllocator:
    """Allocates the slots of a group."""

    def __init__(self, shared: SharedLine, seed: int, group: str) -> None:
        self._shared, self._seed, self._group = shared, seed, group
        self._contests: dict[int, _Contest] = {}
        self._holders: set[DeviceRound] = set()
        self._waiting: list[tuple[float, DeviceRound]] = []

    def contend(self, round: int, client: str, active: bool, of: int) -> dict[DeviceRound, bool]:
        """Record whether a device wants to transfer in a round.

        Args:
            active: whether the device wants to transfer.
            of: number of devices of the group that contend in this round.

        Returns:
            The decisions that are new: for this device, for the others of its round if it was the
            last to contend, and for undecided devices of rounds that are now over.
        """
        over = self._begin(round)
        return over | self._decided(round, client, active, of)

    def take(self, round: int, client: str, at: float) -> list[DeviceRound]:
        """Ask for a slot for a device; return the devices that now get one.

        Args:
            at: when the device asked, in seconds of any clock; an earlier request is served first.
        """
        device_round = (round, client)
        if device_round in self._holders:
            return [device_round]
        if all(device_round != waiting for _, waiting in self._waiting):
            self._waiting.append((at, device_round))
        return self._filled()

    def give(self, round: int, client: str) -> list[DeviceRound]:
        """Give back a device's slot, or stop waiting for one; return the devices that now get
        one."""
        device_round = (round, client)
        self._holders.discard(device_round)
        self._waiting = [entry for entry in self._waiting if entry[1] != device_round]
        return self._filled()

    def _decided(self, round: int, client: str, active: bool, of: int) -> dict[DeviceRound, bool]:
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

    def _begin(self, round: int) -> dict[DeviceRound, bool]:
        """Add a round, unless it is too old, and forget older rounds. Return the decisions for the
        devices of forgotten rounds that were still undecided."""
        if round in self._contests:
            return {}
        if len(self._contests) >= _ROUNDS_KEPT and round < min(self._contests):
            return {}
        self._contests[round] = _Contest()
        decided: dict[DeviceRound, bool] = {}
        for over in sorted(self._contests)[:-_ROUNDS_KEPT]:
            contest = self._contests.pop(over)
            if contest.decided is None:
                decided |= {(over, client): False for client in contest.words}
        return decided

    def _filled(self) -> list[DeviceRound]:
        slots = self._shared.slots if self._shared.overflow == "queue" else None
        found = []
        while self._waiting and (slots is None or len(self._holders) < slots):
            ranks = {
                round: self._ranks(round)
                for round in {device_round[0] for _, device_round in self._waiting}
            }
            first = min(self._waiting, key=lambda entry: (entry[0], ranks[entry[1][0]][entry[1]]))
            self._waiting.remove(first)
            self._holders.add(first[1])
            found.append(first[1])
        return found

    def _ranks(self, round: int) -> dict[DeviceRound, int]:
        """Rank, in the order of turns, of each device that contends in a round or waits for a
        slot."""
        contest = self._contests.get(round, _Contest())
        clients = {each for each, wants in contest.words.items() if wants} | {
            client for _, (of, client) in self._waiting if of == round
        }
        order = turns(self._seed, self._group, round, clients)
        return {(round, client): rank for rank, client in enumerate(order)}
