"""The opportunistic mode: an update that misses its round counts in a later one."""

from muster.server.rounds.modes.carrying import Carrying
from muster.server.rounds.modes.contract import Completion, RoundEnd


class Opportunistic(Carrying):
    """Rounds as in the synchronous mode, but an update that finishes after its round counts in the
    round in which it finishes. A device that still works is not called."""

    def completion(self, goal: int | None, deadline_s: float | None) -> Completion:
        return Completion(goal=goal, window_s=deadline_s)

    def next_s(self, ended: RoundEnd, round_s: float) -> float:
        return ended.number * round_s
