"""Corrects for both stages of selection with the true propensities, which only an emulator has.

Morishita, Who Trains Matters: Federated Learning under Enrollment and Participation Selection
Biases, arXiv:2604.26604, section 4. Equation 11 is the rule with `normalise = "horvitz-thompson"`.
It is the reference that other rules are compared with.
"""

import numpy as np

from muster.common.exchange import PROPENSITY
from muster.server.aggregators.facts import Cohort, Need
from muster.server.aggregators.inverse import InversePropensity, inverse, of_contributions
from muster.server.aggregators.values import State, Weighing
from muster.server.knowledge.propensity import clipped, overlap_of


class OracleIpw(InversePropensity):
    """θ ← θ + Σ Δ_i/(πᵉ_i·πᵖ_i) / Σ 1/(πᵉ_i·πᵖ_i), or divided by N, the size of the population,
    instead.

    The true πᵖ of a round is the probability, given the device's covariates, that its own behaviour
    (availability, eligibility, willingness, drop-outs) lets it take part. Losses to links and
    deadlines are not in it. If a device reported no πᵖ, or 0 although its update came, πᵖ is
    unknown and the update gets weight 0.
    """

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights 1/(πᵉ_i·πᵖ_i); the rule keeps no state."""
        population, latest = cohort.population, cohort.participation.latest
        assert population.oracle.enrollment is not None  # the rule asked for it
        reported = latest.x[:, cohort.participation.columns.index(PROPENSITY)]
        known = reported > 0
        chances, warnings = of_contributions(cohort, latest.places[known], reported[known])
        took_part, few = clipped(chances, self.floor)
        places = population.places([c.client for c in cohort.contributions])
        enrollment = np.array(population.oracle.enrollment)
        enrolled, few_enrolled = clipped(enrollment[places], self.floor)
        weights = inverse(enrolled * took_part)
        estimates = {
            "overlap_enrollment": overlap_of(enrollment[population.enrolled]),
            "overlap_participation": overlap_of(reported),
            "clipped_enrollment": few_enrolled,
            "clipped_participation": few,
        }
        normaliser = self.normaliser_of(weights, float(population.size))
        return Weighing(weights, normaliser, state, estimates, warnings)

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.PROPENSITIES, Need.PARTICIPATION})
