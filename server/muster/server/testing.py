"""Fakes that need the server's contracts; see also `muster.common.testing`."""

from muster.server.aggregators import Aggregator, Contribution, State


class PlusOne(Aggregator):
    """An aggregator so odd that a test cannot pass with another by accident: every weight is the
    number of examples plus `extra`."""

    extra: float = 1.0

    def weight(self, contribution: Contribution, state: State) -> float:
        return contribution.examples + self.extra
