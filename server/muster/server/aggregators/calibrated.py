"""Corrects for enrollment with calibrated weights, which need only means of the population, and for
participation with estimated propensities.

Morishita, Who Trains Matters: Federated Learning under Enrollment and Participation Selection
Biases, arXiv:2604.26604, section 5 and appendix C, equations 17–19. The weights q of the enrolled
devices make their weighted mean of b(Z) equal to the population's mean. This removes the bias if
b(Z) contains everything that enrollment and the updates both depend on; otherwise it removes a
part.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import field_validator

from muster.common.bounds import Positive
from muster.common.errors import ConfigError
from muster.common.features import Feature
from muster.common.seeds import BoolArray, FloatArray
from muster.server.aggregators.estimation import ParticipationModel
from muster.server.aggregators.facts import Cohort, Conditions, Need
from muster.server.aggregators.inverse import InversePropensity
from muster.server.aggregators.values import State, Weighing
from muster.server.knowledge.calibration import CalibrationResult as Weights
from muster.server.knowledge.calibration import calibrate
from muster.server.knowledge.leverage import largest_leverage
from muster.server.knowledge.population import Population


class Calibrated(InversePropensity):
    """θ ← θ + Σ q_i·Δ_i/π̂ᵖ_i, divided by Σ q_i/π̂ᵖ_i unless `normalise = "horvitz-thompson"`.

    The weights of the enrolled devices satisfy q >= 0, Σ q = 1 and Σ q·b(Z) = μ, with μ the mean of
    b(Z) over the population.
    """

    method: Literal["quadratic", "entropy", "soft"] = "quadratic"
    """quadratic: the q nearest to equal weights (equation 18, with q >= 0). entropy: q_i
    proportional to exp(λᵀb(Z_i)), never 0. soft: like quadratic, but the means are only
    approached."""

    on: list[str] | None = None
    """b(Z): columns of Z, or features of them such as "z1 > 0", "z1 ^ 2", "z1 * z2". Absent: all
    columns of Z."""

    penalty: Positive = 100.0
    """soft: the factor of the squared distance of the means, in standard deviations, in the cost;
    the other term is the mean square of n·q − 1. While no q is 0, 1/(1 + penalty) of a distance
    remains."""

    if_infeasible: Literal["refuse", "soft"] = "refuse"
    """What to do if no weights of the enrolled devices have the population's means. refuse: the run
    is refused before it begins; once it has begun, soft is used while devices are still to come.
    soft: soft is used."""

    participation: ParticipationModel = ParticipationModel()
    """How the propensity of participation is estimated."""

    @field_validator("on")
    @classmethod
    def _is_not_empty(cls, on: list[str] | None) -> list[str] | None:
        if on == []:
            raise ValueError("it is empty; expected features of Z, or no `on` for all columns of Z")
        return on

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights n·q_i/π̂ᵖ_i, with n the number of devices that have a q.

        The state holds what the classifier of participation learned, and `q` by position in the
        population, float64, shape (N,); -1 for a device that has no weight.
        """
        population = cohort.population
        took_part = self.participation.estimate(cohort, state, self.floor)
        q, estimates, warnings = self._calibrated(population, state.get("q"))
        n = float(np.count_nonzero(q >= 0))
        places = population.places([c.client for c in cohort.contributions])
        # Scaled by n, so that the mean of n·q over the enrolled is 1, as with propensities.
        # A device whose Z is not known has no q, and its update the weight 0.
        weights = (n * np.maximum(q[places], 0.0) / took_part.chances).tolist()
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
        """Return q by position in the population, estimates and warnings. q is -1 for a device that
        is not enrolled or whose Z is not known yet.

        It is solved again only if a device became known that has no weight yet. After a restart the
        server may not have heard from some devices again; their last q is still right.
        """
        known = _known(population)
        if last is not None and (last[known] >= 0).all():
            return last, {}, ()
        try:
            # A run that is under way goes on; `objections` made its refusal before the run began.
            found = self._solve(population, known, "soft")
        except ConfigError as error:
            return (
                _as_before(last, known),
                {},
                [f"{error}; the last weights are kept, or equal ones if there are none"],
            )
        q = np.full(population.size, -1.0)
        q[known] = found.q
        names = [feature.text for feature in self._features(population.columns)]
        residuals = dict(zip(names, found.residuals.tolist(), strict=True))
        calibration = {
            "method": found.method,
            "solver": found.solver,
            "residual": found.residual,
            "fallen_back": "; ".join(found.fallen_back),
        }
        leverage = largest_leverage(self._moments(population, known), np.flatnonzero(known))
        estimates = {
            "calibration": calibration,
            "calibration_residuals": residuals,
            "leverage_calibration": leverage.estimate(population.clients),
        }
        warned = leverage.warnings(population.clients, "the calibration")
        return q, estimates, [*found.fallen_back, *warned]

    def _solve(
        self, population: Population, known: BoolArray, if_infeasible: Literal["refuse", "soft"]
    ) -> Weights:
        names = [feature.text for feature in self._features(population.columns)]
        target = np.array([population.moments[name] for name in names])
        b = self._moments(population, known)
        return calibrate(self.method, b, target, self.penalty, if_infeasible, names)

    def _moments(self, population: Population, known: BoolArray) -> FloatArray:
        """b(Z) of the devices whose covariates the server knows."""
        columns = dict(zip(population.columns, population.z()[known].T, strict=True))
        features = self._features(population.columns)
        return np.column_stack([feature.of(columns) for feature in features])

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
                yield f"on: {feature.text!r} is listed twice; expected every feature once"
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
    """Return q if no solution was found: the last q, in which a new device gets the mean weight. If
    there is no last q, all weights are equal."""
    if last is None:
        q = np.where(known, 1.0, -1.0)
    else:
        q = np.where(known & (last < 0), last[last >= 0].mean(), last)
    q[q >= 0] /= q[q >= 0].sum()
    return q


def _known(population: Population) -> BoolArray:
    """The enrolled devices whose covariates Z the server knows, as a mask of shape (N,)."""
    known: BoolArray = population.enrolled & np.isfinite(population.z()).all(axis=1)
    return known
