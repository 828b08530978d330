"""Fakes that need the server's contracts; see also `muster.common.testing`."""

from muster.common.tensors import Vector
from muster.server.aggregators import Aggregator, Contribution, State


class PlusOne(Aggregator):
    """An aggregator so odd that a test cannot pass with another by accident: every weight is the
    number of examples plus `extra`."""

    extra: float = 1.0

    def weight(self, contribution: Contribution, state: State) -> float:
        return contribution.examples + self.extra


class NoEvaluation:
    """An evaluator that measures nothing, for a server in a test's own process."""

    async def submit(self, version: int, round: int, model: Vector) -> None:
        """Forget it."""

    def waiting(self) -> set[int]:
        return set()

    async def drained(self) -> None:
        """Nothing waits."""
