"""Corrects for enrollment from means of the population alone, and for participation as before.

Two-Stage Selection Bias in Federated Learning (FedIPW), section 5, equations 17–19: weights q of
the enrolled that make their mean of b(Z) that of the population. Right where b(Z) holds what
enrollment and data have in common; else a part of the way.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import field_validator

from muster.common.bounds import Positive
from muster.common.errors import ConfigError
from muster.common.features import Feature
from muster.common.seeds import BoolArray, FloatArray
from muster.server.aggregators.contract import Cohort, Conditions, Need, State, Weighing
from muster.server.aggregators.estimation import ParticipationModel
from muster.server.aggregators.inverse import InversePropensity
from muster.server.knowledge.calibration import CalibrationResult as Weights
from muster.server.knowledge.calibration import calibrate
from muster.server.knowledge.population import Population


class Calibrated(InversePropensity):
    """θ ← θ + Σ q_i·Δ_i/π̂ᵖ_i, or that over Σ q_i/π̂ᵖ_i; q >= 0, Σ q = 1, Σ q·b(Z) = μ over the
    enrolled."""

    method: Literal["quadratic", "entropy", "soft"] = "quadratic"
    """quadratic: the q nearest to equal weights (equation 18, with q >= 0). entropy: q_i in
    proportion to exp(λᵀb(Z_i)), never 0. soft: quadratic, with means that are only approached."""

    on: list[str] | None = None
    """b(Z): columns of Z, or features of them, "z1 > 0", "z1 ^ 2", "z1 * z2". Absent: all columns
    of Z."""

    penalty: Positive = 100.0
    """soft: what a squared distance of means, in standard deviations, counts beside the mean square
    of n·q − 1. While no q is 0, the part 1/(1 + penalty) of a distance remains."""

    if_infeasible: Literal["refuse", "soft"] = "refuse"
    """What to do when no weights of the enrolled have the population's means. A run is refused
    before it begins; once it has begun, with devices still to come, it takes soft meanwhile."""

    participation: ParticipationModel = ParticipationModel()
    """How the propensity of participation is estimated."""

    @field_validator("on")
    @classmethod
    def _names_some(cls, on: list[str] | None) -> list[str] | None:
        if on == []:
            raise ValueError("it is empty; expected features of Z, or no `on` for all columns of Z")
        return on

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        population = cohort.population
        took_part = self.participation.estimate(cohort, state, self.floor)
        q, estimates, warnings = self._calibrated(population, state.get("q"))
        n = float(np.count_nonzero(q >= 0))
        places = population.places([c.client for c in cohort.contributions])
        # Of the size of propensities' weights: their mean over the enrolled is 1.
        weights = (n * q[places] / took_part.chances).tolist()
        return Weighing(
            weights,
            self.normaliser_of(weights, n),
            {**took_part.state, "q": q},
            {**took_part.estimates, **estimates},
            [*took_part.warnings, *warnings],
        )

    def _calibrated(
        self, population: Population, last: FloatArray | None
    ) -> tuple[FloatArray, dict[str, Any], Sequence[str]]:
        """q by position in the population; -1 for those who are not enrolled, or not known yet.

        It is solved for when there is somebody new. Of those whom a server that came back has not
        heard again, the last q is as right as it was.
        """
        known = _known(population)
        if last is not None and (last[known] >= 0).all():
            return last, {}, ()
        try:
            # A run that is under way goes on; `objections` has refused before it what is refused.
            found = self._solve(population, known, "soft")
        except ConfigError as error:
            return _as_before(last, known), {}, [f"{error}; the last weights stay, or equal ones"]
        q = np.full(population.size, -1.0)
        q[known] = found.q
        names = [feature.text for feature in self._features(population.columns)]
        residuals = dict(zip(names, found.residuals.tolist(), strict=True))
        told = {
            "method": found.method,
            "solver": found.solver,
            "residual": found.residual,
            "fallen_back": "; ".join(found.fallen_back),
        }
        return q, {"calibration": told, "calibration_residuals": residuals}, found.fallen_back

    def _solve(
        self, population: Population, known: BoolArray, if_infeasible: Literal["refuse", "soft"]
    ) -> Weights:
        features = self._features(population.columns)
        columns = dict(zip(population.columns, population.z()[known].T, strict=True))
        b = np.column_stack([feature.of(columns) for feature in features])
        target = np.array([population.moments[feature.text] for feature in features])
        names = [feature.text for feature in features]
        return calibrate(self.method, b, target, self.penalty, if_infeasible, names)

    def _features(self, columns: Sequence[str]) -> list[Feature]:
        if self.on is None:
            return [Feature(column) for column in columns]
        return [Feature.parse(text, columns) for text in self.on]

    def prepare(self) -> None:
        self.participation.classifier.prepare()

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.MOMENTS, Need.PARTICIPATION})

    def features(self) -> Sequence[str]:
        return self.on or ()

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        yield from self.participation.refusals(conditions)
        seen = set[Feature]()
        for text in self.on or ():
            try:
                feature = Feature.parse(text, conditions.z)
            except ValueError as error:
                yield f"on: {error}"
                continue
            if feature in seen:
                yield f"on: {feature.text!r} stands there twice; expected every feature once"
            seen.add(feature)
            for name in sorted(set(feature.columns) - conditions.z):
                known = ", ".join(sorted(conditions.z)) or "none"
                yield f"on: {text!r}: there is no column {name!r} of Z; there are: {known}"

    def objections(self, population: Population) -> Iterator[str]:
        try:
            self._solve(population, _known(population), self.if_infeasible)
        except ConfigError as error:
            yield str(error)


def _as_before(last: FloatArray | None, known: BoolArray) -> FloatArray:
    """q without a solution: the last one, in which who is new weighs the mean; equal at first."""
    if last is None:
        q = np.where(known, 1.0, -1.0)
    else:
        q = np.where(known & (last < 0), last[last >= 0].mean(), last)
    q[q >= 0] /= q[q >= 0].sum()
    return q


def _known(population: Population) -> BoolArray:
    """The enrolled whose covariates the server has been told."""
    known: BoolArray = population.enrolled & np.isfinite(population.z()).all(axis=1)
    return known
