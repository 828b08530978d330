"""Corrects for both stages of selection with the true propensities, which only an emulator has.

Two-Stage Selection Bias in Federated Learning (FedIPW), section 4.1: what others are measured by.
"""

import numpy as np

from muster.common.exchange import PROPENSITY
from muster.server.aggregators.contract import Cohort, Need, State, Weighing
from muster.server.aggregators.inverse import InversePropensity, inverse, of_contributions
from muster.server.knowledge.propensity import clipped, overlap_of


class OracleIpw(InversePropensity):
    """θ ← θ + Σ Δ_i/(πᵉ_i·πᵖ_i) / Σ 1/(πᵉ_i·πᵖ_i), or over N, the whole population.

    The true πᵖ of a round is of the device's own life (availability, eligibility, will, drop-outs),
    given its covariates; what links and deadlines lose is not in it. Of who told none, or 0, though
    its update came, it is not known, and the update weighs nothing.
    """

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        population, latest = cohort.population, cohort.participation.latest
        assert population.oracle.enrollment is not None  # the rule asked for it
        told = latest.x[:, cohort.participation.columns.index(PROPENSITY)]
        chances, warnings = of_contributions(cohort, latest.places[told > 0], told[told > 0])
        took_part, few = clipped(chances, self.floor)
        places = population.places([c.client for c in cohort.contributions])
        enrollment = np.array(population.oracle.enrollment)
        enrolled, few_enrolled = clipped(enrollment[places], self.floor)
        weights = inverse(enrolled * took_part)
        estimates = {
            "overlap_enrollment": overlap_of(enrollment[population.enrolled]),
            "overlap_participation": overlap_of(told),
            "clipped_enrollment": few_enrolled,
            "clipped_participation": few,
        }
        normaliser = self.normaliser_of(weights, float(population.size))
        return Weighing(weights, normaliser, state, estimates, warnings)

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.PROPENSITIES, Need.PARTICIPATION})
