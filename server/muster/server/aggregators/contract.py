"""What an aggregator is.

Every rule is θ ← κ·θ + s·Σ w_i·Δ_i over one exact sum that the server keeps: a rule gives the
weights w_i and the normaliser 1/s, and says whether it weighs updates (κ = 1) or parameters
(κ = s·Σ w_i, so that s·Σ w_i·θ_i is what results). The loop that uses it:

    state = rule.initial_state(model)
    for each round:
        weights, normaliser, state, … = rule.weigh(cohort, state)
        model = κ·model + Σ w_i·Δ_i / normaliser
        state = rule.next_state(state, model)
    result = rule.result(state, model)

State goes in and comes out as a value, and the server commits it with the round; a rule keeps
nothing else. A rule whose weights are known on arrival gives `weight`; one that needs the whole
round gives `weigh`. What more it needs to know than the contributions it names in `needs`, and
gets in `cohort`; what only an emulator knows, an oracle has to ask for too.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.plugins import Plugin
from muster.common.tensors import Vector
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Population

State = Mapping[str, npt.NDArray[Any]]
"""Named arrays of any fixed dtype; empty for a rule without memory."""


class Contribution(NamedTuple):
    """What the server's books say of one update that counts; its vector stays with the server.

    Attributes:
        examples: training examples behind the update; > 0.
        staleness: version it is folded into minus the version it was trained from.
    """

    client: str
    group: str
    examples: int
    staleness: int


class Need(StrEnum):
    """What a rule must be told to give its weights."""

    POPULATION = "population"
    """Covariates Z and enrollment of every device (`server.information = "full"`)."""

    MOMENTS = "moments"
    """Covariates Z of the enrolled, and the population's means of `features`."""

    PARTICIPATION = "participation"
    """Who took part in every round, and the covariates X of all enrolled devices in it."""

    PROPENSITIES = "propensities"
    """The true propensities of enrollment and participation: an oracle."""

    SHARES = "shares"
    """The true c_i = E[1{i in S}/|S|]: an oracle."""


class Cohort(NamedTuple):
    """A round as it closes.

    Attributes:
        round: its number, from 1; empty rounds count.
        contributions: the updates that count; at least one.
        population: all devices, as far as the server knows them.
        participation: of all rounds, this one included; empty unless the rule needs it.
    """

    round: int
    contributions: Sequence[Contribution]
    population: Population
    participation: ParticipationHistory


class Weighing(NamedTuple):
    """What a rule makes of a round.

    Attributes:
        weights: in the order of the contributions; finite, >= 0.
        normaliser: what the weighted sum is divided by; 0: the round is empty.
        state: the rule's, from here on.
        estimates: what the weights rest on, for the ledger: by name a number, a word, or a table of
            them by name.
        warnings: sentences for people.
    """

    weights: Sequence[float]
    normaliser: float
    state: State
    estimates: Mapping[str, Any] = {}
    warnings: Sequence[str] = ()


class Conditions(NamedTuple):
    """What a scenario offers a rule.

    Attributes:
        z, x: names of the columns of covariates Z and X that any group has.
        full: whether the server is told of devices that are not enrolled.
        selection: whom a round calls, by name.
        lockstep: whether X is always that of the round.
        gradient: whether devices return gradients.
        projected: whether local training stays in a ball.
    """

    z: frozenset[str]
    x: frozenset[str]
    full: bool
    selection: str
    lockstep: bool
    gradient: bool
    projected: bool


class Aggregator(Plugin):
    """A rule that turns a round's updates into the next version; its settings are its fields."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "updates"
    weights: ClassVar[Literal["on-arrival", "at-close"]] = "on-arrival"
    """at-close: the weights need the set of the round, and the server folds when it is fixed."""

    def weight(self, contribution: Contribution, state: State) -> float:
        """The weight of one update, for a rule whose weights are known on arrival; finite, >= 0."""
        raise TypeError(f"{type(self).__name__} gives its weights at close")

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        """What the weighted sum is divided by; a round whose normaliser is 0 is empty."""
        return weight_sum

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """The weights of a round; here, those known on arrival."""
        weights = [self.weight(contribution, state) for contribution in cohort.contributions]
        normaliser = self.normaliser(math.fsum(weights), cohort.contributions)
        return Weighing(weights, normaliser, state)

    def prepare(self) -> None:
        """Import what weighing needs and takes long to; called while the fleet assembles."""

    def initial_state(self, model: Vector) -> State:
        """The state before the first round."""
        return {}

    def next_state(self, state: State, model: Vector) -> State:
        """The state after a round that made `model`; not called for an empty round."""
        return state

    def result(self, state: State, model: Vector) -> Vector:
        """What the run offers as its model: float32, shape (parameters,)."""
        return np.asarray(model)

    def needs(self) -> frozenset[Need]:
        """What it must be told."""
        return frozenset()

    def features(self) -> Sequence[str]:
        """Features of the covariates Z whose population means it must be told, as in
        `muster.common.features`."""
        return ()

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Why it cannot work under these conditions: sentences, none if it can."""
        needs = self.needs()
        if self.weighs == "parameters" and conditions.gradient:
            yield (
                "it averages parameters, and with training.gradient devices return none; take a "
                "rule that weighs updates, for example fedavg"
            )
        if Need.POPULATION in needs and not conditions.full:
            yield (
                "it needs covariates Z of devices that are not enrolled, and server.information = "
                "'limited' tells their means alone; take 'calibrated', which works with means, or "
                "set server.information = 'full'"
            )
        if needs & {Need.POPULATION, Need.MOMENTS} and not conditions.z:
            yield (
                "it corrects for covariates Z, and no group has any; name some in "
                "groups.covariates.z"
            )

    def objections(self, population: Population) -> Iterator[str]:
        """Why it cannot work for this population: sentences, none if it can."""
        yield from ()
