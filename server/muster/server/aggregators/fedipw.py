"""FedIPW: corrects for both stages of selection, enrollment and participation, with estimated
propensities.

Morishita, Who Trains Matters: Federated Learning under Enrollment and Participation Selection
Biases, arXiv:2604.26604, section 4. Equation 12 is the rule with `normalise = "horvitz-thompson"`.
"""

from collections.abc import Iterator
from typing import ClassVar

from muster.server.aggregators.estimation import EnrollmentModel, ParticipationModel
from muster.server.aggregators.facts import Cohort, Conditions, Need
from muster.server.aggregators.inverse import InversePropensity, inverse
from muster.server.aggregators.values import State, Weighing


class FedIpw(InversePropensity):
    """θ ← θ + Σ Δ_i/(π̂ᵉ_i·π̂ᵖ_i) / Σ 1/(π̂ᵉ_i·π̂ᵖ_i), or divided by N, the size of the population,
    instead.

    π̂ᵉ is the estimated propensity of enrollment; π̂ᵖ is that of participation among the enrolled
    devices.
    """

    masks: ClassVar[bool] = True

    enrollment: EnrollmentModel = EnrollmentModel()
    """How the propensity of enrollment is estimated."""

    participation: ParticipationModel = ParticipationModel()
    """How the propensity of participation is estimated."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights 1/(π̂ᵉ_i·π̂ᵖ_i). The state holds what both classifiers learned."""
        enrolled = self.enrollment.estimate(cohort, state, self.floor)
        took_part = self.participation.estimate(cohort, state, self.floor)
        weights = inverse(enrolled.chances * took_part.chances)
        return Weighing(
            weights,
            self.normaliser_of(weights, float(cohort.population.size)),
            {**enrolled.state, **took_part.state},
            {**enrolled.estimates, **took_part.estimates},
            [*enrolled.warnings, *took_part.warnings],
        )

    def prepare(self) -> None:
        self.participation.classifier.prepare()
        self.enrollment.classifier.prepare()

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.POPULATION, Need.PARTICIPATION})

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        yield from self.enrollment.refusals(conditions)
        yield from self.participation.refusals(conditions)
