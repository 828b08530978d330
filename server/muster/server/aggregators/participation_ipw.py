"""Corrects for who takes part among the enrolled, and not for who is enrolled.

The comparison of Two-Stage Selection Bias in Federated Learning (FedIPW), section 7: right where
enrollment is fair, and otherwise aimed at the enrolled.
"""

from collections.abc import Iterator

from muster.server.aggregators.contract import Cohort, Conditions, Need, State, Weighing
from muster.server.aggregators.estimation import ParticipationModel
from muster.server.aggregators.inverse import InversePropensity, inverse


class ParticipationIpw(InversePropensity):
    """θ ← θ + Σ Δ_i/π̂ᵖ_i / Σ 1/π̂ᵖ_i, or over the number of the enrolled."""

    participation: ParticipationModel = ParticipationModel()
    """How the propensity of participation is estimated."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
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
