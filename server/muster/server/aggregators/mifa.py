"""The mean of the last updates of all clients, whether they take part in the round or not.

Gu, Huang, Zhang, Huang, Fast Federated Learning in the Presence of Arbitrary Device Unavailability,
NeurIPS 2021, Algorithm 1 (MIFA). https://arxiv.org/abs/2106.04159
"""

from typing import ClassVar, Literal

from muster.common.bounds import Positive
from muster.server.aggregators.bases import Remembering
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.values import State, Weighing


class Mifa(Remembering):
    """θ ← θ + η/N Σ G_j, where G_j is the last update of client j and N the number of enrolled
    devices. Every device counts alike, whatever its examples.

    The paper divides an update by the learning rate of its round, and multiplies the sum by that of
    the current round. This is the same if the learning rate does not change, and with
    `training.gradient`; otherwise an update keeps the learning rate with which it was trained.
    """

    discounts: ClassVar[bool] = False

    rate: Positive = 1.0
    """Factor η of the mean; 1 in the paper."""

    start: Literal["wait", "zero"] = "wait"
    """What happens before every enrolled device has taken part once. wait: versions stay equal to
    the initial model, because the paper's analysis begins with a round of all devices. zero: the
    update of a device that has not taken part yet counts as 0. With wait, the model never changes
    if one enrolled device never takes part."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights 1 and the normaliser N/η; the weights 0 while the rule waits."""
        size, enrolled = len(cohort.contributions), int(cohort.population.enrolled.sum())
        normaliser = enrolled / self.rate
        if self.start == "wait" and cohort.remembered < enrolled:
            warning = (
                "the model stays as it is until every enrolled device has taken part once; set "
                "start = 'zero' to begin without those that have not"
            )
            return Weighing([0.0] * size, normaliser, state, warnings=[warning])
        return Weighing([1.0] * size, normaliser, state, past=1 / normaliser)
