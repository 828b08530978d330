"""The base class of the modes in which an update may count in a round after that of its call."""

from typing import Annotated

from pydantic import Field

from muster.server.rounds.modes.contract import Mode
from muster.server.rounds.staleness import AnyStalenessWeight, Constant


class Carrying(Mode):
    """A mode in which assignments may outlive the round of their call."""

    max_staleness: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """The largest staleness with which an update counts. An older one is recorded as late."""

    staleness_weight: AnyStalenessWeight = Constant(kind="constant")
    """The factor by which the weight of an update falls with its staleness."""

    def outlives_round(self) -> bool:
        return True

    def oldest(self) -> int | None:
        return self.max_staleness

    def discount(self, staleness: int) -> float:
        return self.staleness_weight.factor(staleness)
