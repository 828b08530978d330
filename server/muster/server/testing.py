"""Fakes that implement the server's interfaces; see also `muster.common.testing`."""

from muster.common.tensors import Vector
from muster.server.aggregators import Aggregator, Contribution, State


class PlusOne(Aggregator):
    """An aggregator whose weights are the number of examples plus `extra`.

    It is so unusual that no test passes by accident with another aggregator.
    """

    extra: float = 1.0

    def weight(self, contribution: Contribution, state: State) -> float:
        return contribution.examples + self.extra


class NoEvaluation:
    """An evaluator that evaluates nothing, for a server in a test's own process."""

    async def submit(self, version: int, round: int, model: Vector) -> None:
        """Do nothing with the model."""

    def waiting(self) -> set[int]:
        return set()

    async def drained(self) -> None:
        """Return at once, because no model waits."""
