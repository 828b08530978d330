"""Inverse-propensity weights for participation alone. They correct for which enrolled devices take
part, but not for which devices are enrolled.

Morishita, Who Trains Matters: Federated Learning under Enrollment and Participation Selection
Biases, arXiv:2604.26604, section 7.1 ("Round-only IPW"), where FedIPW is compared with it. It is
unbiased if enrollment is; otherwise it optimises the objective of the enrolled devices.
"""

from collections.abc import Iterator
from typing import ClassVar

from muster.server.aggregators.estimation import ParticipationModel
from muster.server.aggregators.facts import Cohort, Conditions, Need
from muster.server.aggregators.inverse import InversePropensity, inverse
from muster.server.aggregators.values import State, Weighing


class ParticipationIpw(InversePropensity):
    """θ ← θ + Σ Δ_i/π̂ᵖ_i / Σ 1/π̂ᵖ_i, or divided by the number of enrolled devices instead.

    π̂ᵖ is the estimated propensity of participation among the enrolled devices.
    """

    masks: ClassVar[bool] = True

    participation: ParticipationModel = ParticipationModel()
    """How the propensity of participation is estimated."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights 1/π̂ᵖ_i. The state holds what the classifier learned."""
        chances, kept, estimates, warnings = self.participation.estimate(cohort, state, self.floor)
        weights = inverse(chances)
        normaliser = self.normaliser_of(weights, float(cohort.population.enrolled.sum()))
        return Weighing(weights, normaliser, kept, estimates, warnings)

    def prepare(self) -> None:
        self.participation.classifier.prepare()

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.PARTICIPATION})

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        yield from self.participation.refusals(conditions)
