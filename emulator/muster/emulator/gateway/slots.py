"""Allocates the channel slots of a group to the devices that want to transfer in a round. This
module does no I/O and has no clock.

    overflow          contend                                          take, give
    collide, subset   answered once all have contended:                granted at once
                      `lines.granted`
    queue             answered at once: every active device may        granted while a slot is free,
                      transfer                                         else in turn

An inactive device gets the answer false at once.

Rule 1: decisions are final. A device that asks again gets the same answer, whatever it asks. The
decisions of the last two rounds of each device are kept. A device that asks for an earlier round
gets the answer false, and so does one that still waits there when it asks for a later one.

Rule 2: waiting devices get slots in the order in which they asked. Devices that asked at the same
instant get them in the order of `lines.turns`.

Rule 3: a device speaks for itself only. What it says of a round, and of how many devices contend in
it, decides about this device alone: it ends no round of others, and a device whose call said five
waits for the words of five devices, whatever another one says. A device holds, or waits for, at
most one slot.
"""

from dataclasses import dataclass, field

from muster.common.shared_lines import SharedLine, granted, turns

_ROUNDS_KEPT = 2

DeviceRound = tuple[int, str]
"""A device in a round, as (round, client)."""


@dataclass(slots=True)
class _Word:
    """A device's word on a round; `granted` is None while nothing is decided."""

    active: bool
    of: int
    granted: bool | None = None


@dataclass(slots=True)
class _Contest:
    """The words of a round by device, in the order in which they came.

    Attributes:
        decided: the devices that are granted a slot among the first so many.
    """

    words: dict[str, _Word] = field(default_factory=dict)
    decided: dict[int, frozenset[str]] = field(default_factory=dict)


class SlotAllocator:
    """Allocates the slots of a group."""

    def __init__(self, shared: SharedLine, seed: int, group: str) -> None:
        self._shared, self._seed, self._group = shared, seed, group
        self._contests: dict[int, _Contest] = {}
        self._rounds: dict[str, list[int]] = {}  # the last rounds of each device
        self._holders: set[DeviceRound] = set()
        self._waiting: list[tuple[float, DeviceRound]] = []

    def contend(self, round: int, client: str, active: bool, of: int) -> dict[DeviceRound, bool]:
        """Record whether a device wants to transfer in a round.

        Args:
            active: whether the device wants to transfer.
            of: number of devices of the group that contend in this round, as the device says.

        Returns:
            The decisions that are new: for this device, in this round and in those that it forgets,
            and for the others of the round that waited for its word.
        """
        over = self._begin(round, client)
        return over | self._decided(round, client, active, of)

    def take(self, round: int, client: str, at: float) -> list[DeviceRound]:
        """Ask for a slot for a device; return the devices that now get one. The device gives back
        a slot of another round.

        Args:
            at: when the device asked, in seconds of any clock; an earlier request is served first.
        """
        device_round = (round, client)
        if device_round in self._holders:
            return [device_round]
        self._holders = {each for each in self._holders if each[1] != client}
        if all(device_round != waiting for _, waiting in self._waiting):
            self._waiting = [entry for entry in self._waiting if entry[1][1] != client]
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
        if round not in self._rounds[client]:
            return {(round, client): False}
        contest = self._contests[round]
        word = contest.words.setdefault(client, _Word(active, of))
        if word.granted is None:
            word.of = of
            if self._at_once or not word.active:
                word.granted = word.active
        new = [each for each in contest.words if self._decide(round, contest, each)]
        return {
            (round, each): answer
            for each in dict.fromkeys([*new, client])
            if (answer := contest.words[each].granted) is not None
        }

    @property
    def _at_once(self) -> bool:
        return self._shared.slots is None or self._shared.overflow == "queue"

    def _decide(self, round: int, contest: _Contest, client: str) -> bool:
        """Decide about a device if it waits and all of whom it knows have spoken. Return whether
        this is new."""
        word = contest.words[client]
        if word.granted is not None or word.of > len(contest.words):
            return False
        if word.of not in contest.decided:
            able = [each for each, other in contest.words.items() if other.active]
            contest.decided[word.of] = granted(self._shared, self._seed, self._group, round, able)
        word.granted = client in contest.decided[word.of]
        return True

    def _begin(self, round: int, client: str) -> dict[DeviceRound, bool]:
        """Add a round of a device, unless it is too old, and forget the device's older rounds.
        Return the decisions for those in which it still waited."""
        rounds = self._rounds.setdefault(client, [])
        if round in rounds or (len(rounds) >= _ROUNDS_KEPT and round < min(rounds)):
            return {}
        rounds.append(round)
        self._contests.setdefault(round, _Contest())
        decided: dict[DeviceRound, bool] = {}
        for over in sorted(rounds)[:-_ROUNDS_KEPT]:
            rounds.remove(over)
            words = self._contests[over].words
            if words.pop(client).granted is None:
                decided[over, client] = False
            if not words:
                del self._contests[over]
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
        clients = {each for each, word in contest.words.items() if word.active} | {
            client for _, (of, client) in self._waiting if of == round
        }
        order = turns(self._seed, self._group, round, clients)
        return {(round, client): rank for rank, client in enumerate(order)}
