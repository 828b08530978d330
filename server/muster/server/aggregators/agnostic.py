"""Plain mean of the parameters of whoever came, and the average of the iterates as the answer.

Agnostic FedAvg: no weights, no knowledge of who takes part. It optimises Σ p_i·f_i, where p_i is
what participation makes of each client, and its guarantee is for the averaged iterate.
"""

from typing import ClassVar, Literal

from muster.server.aggregators.averaging import Averaging
from muster.server.aggregators.contract import Contribution, State


class Agnostic(Averaging):
    """θ ← 1/|S| Σ θ_i."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "parameters"

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1.0
