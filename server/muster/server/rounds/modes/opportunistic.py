"""The opportunistic mode: an update that misses its round counts in a later one."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from muster.server.rounds.modes.contract import Completion, Mode, RoundEnd
from muster.server.rounds.modes.staleness import AnyStalenessWeight, Constant
from muster.server.rounds.selection import Selection


class Opportunistic(Mode):
    """Rounds as in the synchronous mode, but an update that finishes after its round counts in the
    round in which it finishes. A device that still works is not called."""

    carries = True

    max_staleness: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """The largest staleness with which an update counts. An older one is recorded as late."""

    staleness_weight: AnyStalenessWeight = Constant(kind="constant")
    """The factor by which the weight of an update falls with its staleness."""

    def completion(self, goal: int | None, deadline_s: float | None) -> Completion:
        return Completion(goal=goal, window_s=deadline_s)

    def next_s(self, ended: RoundEnd, round_s: float) -> float:
        return ended.number * round_s

    def oldest(self) -> int | None:
        return self.max_staleness

    def discount(self, staleness: int) -> float:
        return self.staleness_weight.factor(staleness)

    def refusals(
        self, selection: Selection, devices: int, lockstep: bool, shared: bool
    ) -> Iterator[str]:
        if lockstep and shared:
            yield (
                "in lockstep, the seconds that a shared link adds are known only within a round, "
                "and updates outlive theirs; take clock.kind = 'wall', or the synchronous mode"
            )
