"""What an aggregator may know: of a round and its updates, and of the scenario that uses it."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from muster.common.bounds import DEVICES
from muster.common.exchange import Valuation
from muster.common.seeds import FloatArray
from muster.server.knowledge.local_work import LocalWork
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Population


class Contribution(NamedTuple):
    """One update that counts, as the server has recorded it; its vector stays with the server.

    Attributes:
        examples: the number of training examples behind the update; > 0.
        staleness: the version that it is folded into minus the version that it was trained from.
        discount: the factor by which the mode lets its weight fall because it is stale.
        effective_steps: ‖a‖₁, the local steps that the update counts for, with `Need.STEPS`.
        initial_loss: the loss of the received model on the device's examples, with `Need.LOSS`;
            finite, >= 0.
        squared_norm: ‖Δ‖², with `Need.NORM`.
        learning_rate: η of its local steps.
    """

    client: str
    group: str
    examples: int
    staleness: int
    discount: float = 1.0
    effective_steps: float = math.nan
    initial_loss: float = math.nan
    squared_norm: float = math.nan
    learning_rate: float = math.nan


class Need(StrEnum):
    """A kind of information that a rule needs to compute its weights."""

    POPULATION = "population"
    """Covariates Z and enrollment of every device (`server.information = "full"`)."""

    MOMENTS = "moments"
    """Covariates Z of the enrolled devices, and the population's means of `features`."""

    PARTICIPATION = "participation"
    """The devices that took part in each round, and the covariates X of all enrolled devices in
    it."""

    PROPENSITIES = "propensities"
    """The true propensities of enrollment and participation, for an oracle."""

    SHARES = "shares"
    """The true c_i = E[1{i in S}/|S|], for an oracle."""

    DISTANCES = "distances"
    """The squared Euclidean distances between the updates of the round. For n updates of d
    parameters, they take n²·d/2 steps in each round, and 8·n² bytes."""

    VALUATIONS = "valuations"
    """How rational devices value the model (`Cohort.valuations`)."""

    STEPS = "steps"
    """The local steps of each update (`Contribution.effective_steps`)."""

    LOSS = "loss"
    """The loss of each device before training (`Contribution.initial_loss`)."""

    NORM = "norm"
    """The norm of each update (`Contribution.squared_norm`)."""


OF_UPDATES = frozenset({Need.STEPS, Need.LOSS, Need.NORM})
"""What is known of each update by itself."""


REPORTED: Mapping[Need, str] = MappingProxyType({Need.LOSS: "initial_loss"})
"""The facts that devices report (`muster.common.facts`) and `Contribution` has by the same name."""


class Cohort(NamedTuple):
    """A round at its close, as a rule sees it.

    Attributes:
        round: the number of the round, from 1; empty rounds are counted too.
        contributions: the updates that count; at least one, unless the rule changes the model by
            recall.
        population: all devices, as far as the server knows them.
        participation: the history of all rounds up to this one; empty unless the rule needs it.
        distances: the squared Euclidean distances between the updates, in the order of
            `contributions`, float64, shape (updates, updates); None unless the rule needs them.
        remembered: if the model changes by memory, the number of clients that have a last update,
            including those of this round.
        valuations: how rational devices valued the model of this round, by client, with
            `Need.VALUATIONS`.
        seed: the scenario's seed, for rules that draw.
    """

    round: int
    contributions: Sequence[Contribution]
    population: Population
    participation: ParticipationHistory
    distances: FloatArray | None = None
    remembered: int = 0
    valuations: Mapping[str, Valuation] = MappingProxyType({})
    seed: int = 0


class Conditions(NamedTuple):
    """The conditions under which a scenario makes a rule work.

    Attributes:
        z, x: names of the columns of covariates Z and X that at least one group has.
        full: whether the server knows the devices that are not enrolled.
        selection: the registered name of the rule that selects the devices to call.
        lockstep: whether the X that the server has is always that of the current round.
        gradient: whether devices return gradients.
        masked: whether any group trains parts of the model.
        least: the fewest updates with which a round is not empty.
        most: the most updates that can count in a round.
        discounts: whether the mode lets the weight of stale updates fall.
        local_work: what is known of local training.
        rational: whether the devices of all groups are rational.
    """

    z: frozenset[str]
    x: frozenset[str]
    full: bool
    selection: str
    lockstep: bool
    gradient: bool
    masked: bool = False
    least: int = 1
    most: int = DEVICES
    discounts: bool = False
    local_work: LocalWork = LocalWork()
    rational: bool = False
