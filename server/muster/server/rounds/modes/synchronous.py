"""The synchronous mode: every assignment ends with the round of its call."""

from muster.server.rounds.modes.contract import Completion, Mode, RoundEnd


class Synchronous(Mode):
    """A round closes when its goal is reached, when nothing more is expected of any called device,
    or at its deadline. Updates that come later are recorded and do not count."""

    def calls_whom_it_selects(self) -> bool:
        return True

    def completion(self, goal: int | None, deadline_s: float | None) -> Completion:
        return Completion(goal=goal, deadline_s=deadline_s)

    def next_s(self, ended: RoundEnd, round_s: float) -> float:
        return ended.next_s(round_s)
