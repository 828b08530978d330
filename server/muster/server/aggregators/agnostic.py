"""The plain mean of the parameters of the clients that take part (agnostic FedAvg). By default the
run offers the average of the iterates as its model.

Convergence of Agnostic Federated Averaging, Algorithm 1 and Theorem 4. The rule needs neither
weights nor knowledge of how often a client takes part. It minimises Σ p_i·f_i, where
p_i = E[1{i in S}/|S|] over the rounds in which S is not empty. The theorem is about the average of
the iterates.
"""

from typing import ClassVar, Literal

from muster.server.aggregators.averaging import Averaging
from muster.server.aggregators.facts import Contribution
from muster.server.aggregators.values import State


class Agnostic(Averaging):
    """θ ← 1/|S| Σ θ_i, summed over the set S of clients whose updates count in the round."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "parameters"

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1.0
