"""Propensities estimated from the server's books: who enrolled, and who takes part.

Enrollment is learned once, from covariates Z over the whole population. Participation is learned
among the enrolled only, from (Z, X) in every round so far, and again as rounds accumulate. Learned
on everybody it would hold the enrollment a second time, and correct for nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.config import Section
from muster.common.seeds import BoolArray, FloatArray, IntArray
from muster.server.aggregators.contract import Cohort, Conditions, State
from muster.server.aggregators.inverse import of_contributions
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
    """Propensities of a round's contributions, and what they rest on.

    Attributes:
        chances: in the order of the contributions, none below the floor; infinite where it is not
            known, so that the update weighs nothing.
        state: named arrays to be kept.
        estimates, warnings: as of a `Weighing`.
    """

    chances: FloatArray
    state: State
    estimates: Mapping[str, Any]
    warnings: Sequence[str]


class EnrollmentModel(Section):
    """How the propensity of enrollment is estimated."""

    classifier: AnyClassifier = _LOGISTIC
    """What learns it: a name, or module:Class, its settings beside it."""

    z: list[str] | None = None
    """Columns of the covariates Z that it looks at; absent: all."""

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Why it cannot work under these conditions."""
        yield from _misnamed("enrollment.z", self.z, conditions.z)

    def estimate(self, cohort: Cohort, state: State, floor: float) -> Estimated:
        """π̂ᵉ of the contributions (FedIPW, section 4.2); learned in the first round."""
        population = cohort.population
        z = population.z()[:, _chosen(population.columns, self.z)]
        fitted, warnings = _kept(state, "enrollment"), list[str]()
        if not fitted:
            fitted, warnings = _fit(self.classifier, z, population.enrolled, "enrollment")
        among, few = clipped(_chances(self.classifier, fitted, z), floor)
        places = population.places([c.client for c in cohort.contributions])
        names = self.z if self.z is not None else population.columns
        estimates = {
            "enrollment": _coefficients(fitted, names),
            "overlap_enrollment": overlap_of(among[population.enrolled]),
            "clipped_enrollment": few,
        }
        return Estimated(among[places], _prefixed("enrollment", fitted), estimates, warnings)


class ParticipationModel(Section):
    """How the propensity of participation is estimated."""

    classifier: AnyClassifier = _LOGISTIC
    """What learns it: a name, or module:Class, its settings beside it."""

    z: list[str] | None = None
    """Columns of the covariates Z that it looks at; absent: all."""

    x: list[str] | None = None
    """Covariates X that it looks at; absent: all."""

    refit_growth: Annotated[float, Field(gt=1, le=1000)] = 1.25
    """It is learned again when there are this many times the rounds of the last time."""

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Why it cannot work under these conditions."""
        yield from _misnamed("participation.z", self.z, conditions.z)
        yield from _misnamed("participation.x", self.x, conditions.x)

    def estimate(self, cohort: Cohort, state: State, floor: float) -> Estimated:
        """π̂ᵖ of the contributions in this round (FedIPW, section 4.2)."""
        participation, population = cohort.participation, cohort.population
        latest, z = participation.latest, population.z()
        fitted, warnings = _kept(state, "participation"), list[str]()
        last = int(state["participation_round"]) if "participation_round" in state else 0
        if refit_due(cohort.round, last, self.refit_growth):
            rows = participation.pooled()
            features = self._features(cohort, z, rows.places, rows.x)
            fitted, warnings = _fit(self.classifier, features, rows.took_part, "participation")
            last = cohort.round if fitted else 0
        features = self._features(cohort, z, latest.places, latest.x)
        known = np.isfinite(features).all(axis=1)
        chances, few = clipped(_chances(self.classifier, fitted, features[known]), floor)
        of_round, unknown = of_contributions(cohort, latest.places[known], chances)
        z_names = self.z if self.z is not None else population.columns
        x_names = self.x if self.x is not None else participation.columns
        estimates: dict[str, Any] = {
            "participation": _coefficients(fitted, [*z_names, *x_names]),
            "overlap_participation": overlap_of(chances),
            "clipped_participation": few,
        }
        if stale := _stale(participation):
            estimates["stale"] = stale
        kept = {**_prefixed("participation", fitted), "participation_round": np.array(last)}
        return Estimated(of_round, kept, estimates, [*warnings, *unknown])

    def _features(
        self, cohort: Cohort, z: FloatArray, places: IntArray, x: FloatArray
    ) -> FloatArray:
        z_chosen = _chosen(cohort.population.columns, self.z)
        x_chosen = _chosen(cohort.participation.columns, self.x)
        return np.hstack([z[places][:, z_chosen], x[:, x_chosen]])


def _misnamed(key: str, wanted: Sequence[str] | None, there: frozenset[str]) -> Iterator[str]:
    """Sentences on columns that are wanted and are not there, or are wanted twice."""
    for name, times in Counter(wanted or ()).items():
        if name not in there:
            known = ", ".join(sorted(there)) or "none"
            yield f"{key}: there is no covariate {name!r}; there are: {known}"
        elif times > 1:
            yield f"{key}: {name!r} stands there {times} times; expected every covariate once"


def _chosen(columns: Sequence[str], wanted: Sequence[str] | None) -> list[int]:
    return [columns.index(name) for name in (columns if wanted is None else wanted)]


def _kept(state: State, model: str) -> Fitted:
    mark = f"{model}:"
    return {name.removeprefix(mark): a for name, a in state.items() if name.startswith(mark)}


def _prefixed(model: str, fitted: Fitted) -> State:
    return {f"{model}:{name}": array for name, array in fitted.items()}


def _fit(
    classifier: Classifier, features: FloatArray, taken: BoolArray, of: str
) -> tuple[Fitted, list[str]]:
    """What is learned of rows whose features are all known, and what people should be told; nothing
    where there is no such row yet."""
    known = np.isfinite(features).all(axis=1)
    if not known.any():
        return {}, []
    fitted = classifier.fit(features[known], taken[known])
    if fitted.get("converged", True):
        return fitted, []
    return fitted, [f"the propensity of {of} was not learned to the end; its weights are rough"]


def _chances(classifier: Classifier, fitted: Fitted, features: FloatArray) -> FloatArray:
    """The propensities of rows; 1 where nothing was learned yet."""
    return classifier.chance(fitted, features) if fitted else np.ones(len(features))


def _stale(participation: ParticipationHistory) -> dict[str, float]:
    """What was not known of the round itself; nothing where all was."""
    ages = participation.latest.age_s
    old = ages[ages > 0]
    if not len(old):
        return {"share": 0.0, "unknown": participation.unknown} if participation.unknown else {}
    share, mean_age_s = len(old) / len(ages), float(old.mean())
    return {"share": share, "mean_age_s": mean_age_s, "unknown": participation.unknown}


def _coefficients(fitted: Fitted, names: Sequence[str]) -> dict[str, float]:
    """Coefficients by name; none where a classifier has no such thing."""
    found = fitted.get("coefficients")
    if found is None or found.shape != (len(names) + 1,):
        return {}
    return dict(zip(["(intercept)", *names], found.tolist(), strict=True))
