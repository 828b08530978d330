"""The opportunistic mode: an update that misses its round counts in a later one."""

from collections.abc import Iterator

from muster.server.rounds.modes.carrying import Carrying
from muster.server.rounds.modes.contract import Completion, ModeConditions, RoundEnd


class Opportunistic(Carrying):
    """Rounds as in the synchronous mode, but an update that finishes after its round counts in the
    round in which it finishes. A device that still works is not called."""

    def completion(self, goal: int | None, deadline_s: float | None) -> Completion:
        return Completion(goal=goal, window_s=deadline_s)

    def refusals(self, conditions: ModeConditions) -> Iterator[str]:
        deadline_s, round_s = conditions.deadline_s, conditions.round_s
        too_long = deadline_s is None or deadline_s > round_s
        if conditions.lockstep and conditions.shared and too_long and not conditions.modelled:
            found = "none" if deadline_s is None else f"{deadline_s:g}"
            yield (
                f"with a shared link, the calls of a round can delay the updates of the round "
                f"before, so in lockstep a round takes only updates that finish before the next "
                f"one opens; expected server.deadline_s of at most clock.round_s = {round_s:g}, "
                f"found {found}"
            )
        yield from super().refusals(conditions)

    def next_s(self, ended: RoundEnd, round_s: float) -> float:
        return ended.next_s(round_s)
