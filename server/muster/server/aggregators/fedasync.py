"""Mixes the model of a device into the model of the server, less if it is stale.

Xie, Koyejo, Gupta, Asynchronous Federated Optimization, 2019, Algorithm 1.
https://arxiv.org/abs/1903.03934
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Contribution
from muster.server.aggregators.values import State


class FedAsync(Aggregator):
    """θ ← (1 − α·s)·θ + α·s·θ_i, where s is the mode's staleness weight and θ_i the model that the
    device has trained. With k updates in a version, their θ_i and s are averaged: FedAsync proper
    is the buffered mode with k = 1."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "parameters"
    mixes: ClassVar[bool] = True

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.6
    """α, the share of a model that is not stale in the next version."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1.0

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        return len(contributions) / self.alpha
