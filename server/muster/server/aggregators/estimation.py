"""Models that estimate the propensities of enrollment and of participation from the server's
records.

Enrollment is learned once, from the covariates Z of the whole population. Participation is learned
among the enrolled devices only, from (Z, X) in all rounds so far, and again as rounds accumulate.
If it were learned on all devices, its propensity would contain the enrollment a second time, and
the weights would correct for nothing.

Morishita, Who Trains Matters: Federated Learning under Enrollment and Participation Selection
Biases, arXiv:2604.26604, section 4, "Estimating the two-stage inclusion probability".
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.config import Section
from muster.common.seeds import BoolArray, FloatArray, IntArray
from muster.server.aggregators.facts import Cohort, Conditions
from muster.server.aggregators.inverse import of_contributions
from muster.server.aggregators.values import State
from muster.server.knowledge.leverage import largest_leverage
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.propensity import (
    CLASSIFIERS,
    Classifier,
    Fitted,
    LogisticClassifier,
    clipped,
    overlap_of,
    refit_due,
)

AnyClassifier = Annotated[SerializeAsAny[Classifier], BeforeValidator(CLASSIFIERS.parse)]

_LOGISTIC = LogisticClassifier(kind="logistic")


class Estimated(NamedTuple):
    """The estimated propensities of a round's contributions.

    Attributes:
        chances: one propensity per contribution, in their order; none is below the floor. An
            unknown one is infinite, so that the update gets weight 0.
        state: named arrays that the rule keeps in its state.
        estimates, warnings: for the fields of the same names of `Weighing`.
    """

    chances: FloatArray
    state: State
    estimates: Mapping[str, Any]
    warnings: Sequence[str]


class EnrollmentModel(Section):
    """How the propensity of enrollment is estimated."""

    classifier: AnyClassifier = _LOGISTIC
    """The classifier that learns it: a name, or module:Class, with its settings beside it."""

    z: list[str] | None = None
    """The columns of the covariates Z that it uses; absent: all."""

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Yield the reasons why the model cannot work under these conditions."""
        yield from _misnamed("enrollment.z", self.z, conditions.z)

    def estimate(self, cohort: Cohort, state: State, floor: float) -> Estimated:
        """Return π̂ᵉ of the contributions; the model is learned in the first round."""
        population = cohort.population
        z = population.z()[:, _chosen(population.columns, self.z)]
        fitted, warnings = _kept(state, "enrollment"), list[str]()
        if not fitted:
            fitted, warnings = _fit(self.classifier, z, population.enrolled, "enrollment")
        chances, clipped_count = clipped(_chances(self.classifier, fitted, z), floor)
        places = population.places([c.client for c in cohort.contributions])
        names = self.z if self.z is not None else population.columns
        estimates = {
            "enrollment": _coefficients(fitted, names),
            "overlap_enrollment": overlap_of(chances[population.enrolled]),
            "clipped_enrollment": clipped_count,
        }
        return Estimated(chances[places], _prefixed("enrollment", fitted), estimates, warnings)


class ParticipationModel(Section):
    """How the propensity of participation is estimated."""

    classifier: AnyClassifier = _LOGISTIC
    """The classifier that learns it: a name, or module:Class, with its settings beside it."""

    z: list[str] | None = None
    """The columns of the covariates Z that it uses; absent: all."""

    x: list[str] | None = None
    """The covariates X that it uses; absent: all."""

    refit_growth: Annotated[float, Field(gt=1, le=1000)] = 1.25
    """It is learned again when the number of rounds has grown by this factor since the last fit."""

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Yield the reasons why the model cannot work under these conditions."""
        yield from _misnamed("participation.z", self.z, conditions.z)
        yield from _misnamed("participation.x", self.x, conditions.x)

    def estimate(self, cohort: Cohort, state: State, floor: float) -> Estimated:
        """Return π̂ᵖ of the contributions in this round; the model is learned again if it is due."""
        participation, population = cohort.participation, cohort.population
        latest, z = participation.latest, population.z()
        fitted, warnings = _kept(state, "participation"), list[str]()
        estimates: dict[str, Any] = {}
        last = int(state["participation_round"]) if "participation_round" in state else 0
        if refit_due(cohort.round, last, self.refit_growth):
            rows = participation.pooled()
            features = self._features(cohort, z, rows.places, rows.x)
            fitted, warnings = _fit(self.classifier, features, rows.took_part, "participation")
            last = cohort.round if fitted else 0
            if fitted:
                known = np.isfinite(features).all(axis=1)
                leverage = largest_leverage(features[known], rows.places[known])
                estimates["leverage_participation"] = leverage.estimate(population.clients)
                warnings = [*warnings, *leverage.warnings(population.clients, "participation")]
        features = self._features(cohort, z, latest.places, latest.x)
        known = np.isfinite(features).all(axis=1)
        of_rows = _chances(self.classifier, fitted, features[known])
        of_rows, clipped_count = clipped(of_rows, floor)
        chances, unknown = of_contributions(cohort, latest.places[known], of_rows)
        z_names = self.z if self.z is not None else population.columns
        x_names = self.x if self.x is not None else participation.columns
        estimates |= {
            "participation": _coefficients(fitted, [*z_names, *x_names]),
            "overlap_participation": overlap_of(of_rows),
            "clipped_participation": clipped_count,
        }
        if stale := _stale(participation):
            estimates["stale"] = stale
        kept = {**_prefixed("participation", fitted), "participation_round": np.array(last)}
        return Estimated(chances, kept, estimates, [*warnings, *unknown])

    def _features(
        self, cohort: Cohort, z: FloatArray, places: IntArray, x: FloatArray
    ) -> FloatArray:
        z_chosen = _chosen(cohort.population.columns, self.z)
        x_chosen = _chosen(cohort.participation.columns, self.x)
        return np.hstack([z[places][:, z_chosen], x[:, x_chosen]])


def _misnamed(key: str, wanted: Sequence[str] | None, existing: frozenset[str]) -> Iterator[str]:
    """Yield a sentence for every wanted column that does not exist or is listed repeatedly."""
    for name, times in Counter(wanted or ()).items():
        if name not in existing:
            known = ", ".join(sorted(existing)) or "none"
            yield f"{key}: there is no covariate {name!r}; there are: {known}"
        elif times > 1:
            yield f"{key}: {name!r} is listed {times} times; expected every covariate once"


def _chosen(columns: Sequence[str], wanted: Sequence[str] | None) -> list[int]:
    return [columns.index(name) for name in (columns if wanted is None else wanted)]


def _kept(state: State, model: str) -> Fitted:
    """The fitted arrays of a model in the rule's state; empty if it was never fitted."""
    mark = f"{model}:"
    return {name.removeprefix(mark): a for name, a in state.items() if name.startswith(mark)}


def _prefixed(model: str, fitted: Fitted) -> State:
    return {f"{model}:{name}": array for name, array in fitted.items()}


def _fit(
    classifier: Classifier, features: FloatArray, taken: BoolArray, of: str
) -> tuple[Fitted, list[str]]:
    """Fit the classifier to the rows whose features are all known. Return the fitted arrays, which
    are empty if there is no such row yet, and warnings."""
    known = np.isfinite(features).all(axis=1)
    if not known.any():
        return {}, []
    fitted = classifier.fit(features[known], taken[known])
    if fitted.get("converged", True):
        return fitted, []
    return fitted, [f"the fit of the propensity of {of} did not converge; its weights are rough"]


def _chances(classifier: Classifier, fitted: Fitted, features: FloatArray) -> FloatArray:
    """The propensities of rows; all 1 if nothing was learned yet."""
    return classifier.chance(fitted, features) if fitted else np.ones(len(features))


def _stale(participation: ParticipationHistory) -> dict[str, float]:
    """Summarise which covariates X are not of the round itself: the share and the mean age of old
    ones, and the number of devices without any; empty if all are of the round."""
    ages = participation.latest.age_s
    old = ages[ages > 0]
    if not len(old):
        return {"share": 0.0, "unknown": participation.unknown} if participation.unknown else {}
    share, mean_age_s = len(old) / len(ages), float(old.mean())
    return {"share": share, "mean_age_s": mean_age_s, "unknown": participation.unknown}


def _coefficients(fitted: Fitted, names: Sequence[str]) -> dict[str, float]:
    """Coefficients by name; empty if the classifier has none."""
    found = fitted.get("coefficients")
    if found is None or found.shape != (len(names) + 1,):
        return {}
    return dict(zip(["(intercept)", *names], found.tolist(), strict=True))
