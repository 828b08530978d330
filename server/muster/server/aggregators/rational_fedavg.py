"""The mean of what all rational devices have sent last.

Yashwanth, Singh, Nayak, Bulusu, Chakraborty, Federated Learning by Utility-Constrained Stochastic
Aggregation for Improving Rational Participation, 2026, Algorithm 4. https://arxiv.org/abs/2605.18020
"""

from collections.abc import Sequence

from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.retaining import DeviceWeights, Retaining, equal_weights
from muster.server.aggregators.values import State


class RationalFedAvg(Retaining):
    """FedAvg with the weight 1/N for each of N enrolled devices, for rational devices. The paper's
    FedAvg has retention = "model". FedProx is the same with `training.proximal_mu`, and FedAvg-WS
    with `forced_rounds` in `groups.participation.utility`.

    With retention = "update" it is `mifa` with start = "zero", apart from three things: it makes a
    version also in rounds in which nobody accepts, it tells devices their weights, and for that it
    is refused together with whatever could keep an update from counting.
    """

    def device_weights(self, clients: Sequence[str], cohort: Cohort, state: State) -> DeviceWeights:
        """See `Retaining.device_weights`."""
        return DeviceWeights(equal_weights(len(clients)))
