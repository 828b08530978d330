"""The interface of an aggregator, and the values that go in and come out.

Every rule has the form θ ← κ·θ + s·Σ w_i·Δ_i. Δ_i is the update of client i: the trained parameters
minus the received ones. The server computes the sum exactly. The rule gives the weights w_i and the
normaliser 1/s, and declares what it weighs: updates (κ = 1), or parameters (κ = s·Σ w_i, so that
the result is s·Σ w_i·θ_i). With `training.gradient`, Δ_i is the gradient of client i instead, and
the server also multiplies the sum by minus the learning rate. The loop that uses a rule:

    state = rule.initial_state(model)
    for each round:
        weights, normaliser, state, … = rule.weigh(cohort, state)
        model = κ·model + Σ w_i·Δ_i / normaliser
        state = rule.next_state(state, model)
    result = rule.result(state, model)

State goes in and comes out as a value, and the server commits it with the round. A rule keeps
nothing else between rounds.

A rule whose weights are known on arrival implements `weight`. A rule that needs the whole round
implements `weigh`. If a rule needs to know more than the contributions, it names that in `needs`
and gets it in `cohort`. This includes the truth that an oracle uses and that only an emulator
knows.

A rule that `remembers` makes the server keep y_i, the last update of every client (0 before its
first one). Such a rule has the form θ ← θ + s·Σ w·(Δ_i − y_i) + p·Σ y_j, where the first sum is
over the round and the second one over all clients. Then y_i ← Δ_i for the clients of the round.

A rule that `combines` makes θ ← θ + s·c, where c is made from the updates coordinate by coordinate,
for example as their median: see `combine`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.bounds import DEVICES
from muster.common.plugins import Plugin
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.knowledge.local_work import LocalWork
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Population

State = Mapping[str, npt.NDArray[Any]]
"""Named arrays of any fixed dtype; empty for a rule that remembers nothing."""

Matrix = npt.NDArray[np.float32]
"""Some coordinates of several vectors, one vector in a row."""


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
    STEPS = "steps"
    """The local steps of each update (`Contribution.effective_steps`)."""

    LOSS = "loss"
    """The loss of each device before training (`Contribution.initial_loss`)."""

    NORM = "norm"
    """The norm of each update (`Contribution.squared_norm`)."""


OF_UPDATES = frozenset({Need.STEPS, Need.LOSS, Need.NORM})
"""What is known of each update by itself."""


class Cohort(NamedTuple):
    """A round at its close, as a rule sees it.

    Attributes:
        round: the number of the round, from 1; empty rounds are counted too.
        contributions: the updates that count; at least one.
        population: all devices, as far as the server knows them.
        participation: the history of all rounds up to this one; empty unless the rule needs it.
        distances: the squared Euclidean distances between the updates, in the order of
            `contributions`, float64, shape (updates, updates); None unless the rule needs them.
        remembered: for a rule that remembers, the number of clients that have a last update,
            including those of this round.
    """

    round: int
    contributions: Sequence[Contribution]
    population: Population
    participation: ParticipationHistory
    distances: FloatArray | None = None
    remembered: int = 0


class Weighing(NamedTuple):
    """The weights that a rule gives to the updates of a round.

    Attributes:
        weights: one per contribution, in their order; finite, >= 0.
        normaliser: the divisor of the weighted sum; if it is 0, the round is empty.
        state: the rule's next state.
        estimates: the quantities that the weights are based on, for the ledger. By name, each is a
            number, a word, or a table of these by name.
        warnings: sentences for people.
        past: for a rule that remembers, the factor p of the sum of the last updates of all clients
            before this round. Its weights must all be the same.
    """

    weights: Sequence[float]
    normaliser: float
    state: State
    estimates: Mapping[str, Any] = {}
    warnings: Sequence[str] = ()
    past: float = 0.0


class Conditions(NamedTuple):
    """The conditions under which a scenario makes a rule work.

    Attributes:
        z, x: names of the columns of covariates Z and X that at least one group has.
        full: whether the server knows the devices that are not enrolled.
        selection: the registered name of the rule that selects the devices to call.
        lockstep: whether the X that the server has is always that of the current round.
        gradient: whether devices return gradients.
        projected: whether local training is projected onto a ball.
        masked: whether any group trains parts of the model.
        least: the fewest updates with which a round is not empty.
        most: the most updates that can count in a round.
        discounts: whether the mode lets the weight of stale updates fall.
        local_work: what is known of local training.
    """

    z: frozenset[str]
    x: frozenset[str]
    full: bool
    selection: str
    lockstep: bool
    gradient: bool
    projected: bool
    masked: bool = False
    least: int = 1
    most: int = DEVICES
    discounts: bool = False
    local_work: LocalWork = LocalWork()


class Aggregator(Plugin):
    """A rule that combines the updates of a round into the next version of the model. Its settings
    are its fields."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "updates"
    """Whether the weights apply to the updates Δ_i or to the parameters θ_i."""

    mixes: ClassVar[bool] = False
    """For a rule that weighs parameters: whether the model keeps the share that the weights,
    divided by the normaliser, leave of 1."""

    private: ClassVar[bool] = False
    """Whether the rule still makes sense if the server clips updates, weighs all devices alike and
    adds noise (`server.privacy`): whether it uses the mean of the updates and nothing else."""

    optimises: ClassVar[bool] = False
    """Whether `step` says how the model changes; otherwise the weighted sum is added to it."""

    remembers: ClassVar[bool] = False
    """Whether the server keeps the last update of every client. It then folds the updates after the
    round closed."""

    combines: ClassVar[bool] = False
    """Whether `combine` makes the change of the model; otherwise it is the weighted sum. The
    weights then only say which updates `combine` gets: those whose weight is not 0. The server
    keeps the updates until the round closes. The rule weighs updates."""

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "on-arrival"
    """on-arrival: `weight` gives the weight of an update when it arrives. at-close: the weights
    depend on the set of clients in the round, so the server folds the updates after it closed."""

    masks: ClassVar[bool] = False
    """Whether devices may train parts of the model. The rule must weigh updates, and neither
    optimise nor combine. The weighted sum is then taken over the updates that have a coordinate,
    and multiplied by ψ (see `compensates`). A coordinate that no update has keeps its value."""

    def folds_on_arrival(self) -> bool:
        """Return whether an update can be folded when it arrives: its weight is known then, and
        nothing needs it again."""
        again = self.remembers or self.combines or Need.DISTANCES in self.needs()
        return self.weights == "on-arrival" and not again

    def compensates(self) -> bool:
        """Return whether, if devices train parts of the model, the weighted sum of a coordinate is
        multiplied by ψ = Σ w_i / Σ w_i·m_i, with m_i = 1 if update i has the coordinate, else 0.
        Without ψ, a coordinate that few updates have moves less."""
        return True

    discounts: ClassVar[bool] = True
    """Whether a stale update weighs less, by the mode's discount. If not, the rule is refused
    together with a `staleness_weight` other than "constant"."""

    def weight(self, contribution: Contribution, state: State) -> float:
        """Return the weight of one update, finite and >= 0. A rule whose weights are known on
        arrival implements it."""
        raise TypeError(f"{type(self).__name__} gives its weights at close")

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        """Return the divisor of the weighted sum; a round whose normaliser is 0 is empty."""
        return weight_sum

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights of a round. The default asks `weight`, times the discount of stale
        updates, and `normaliser`; a rule that needs the whole round overrides it."""
        weights = [self.weight(c, state) * c.discount for c in cohort.contributions]
        normaliser = self.normaliser(math.fsum(weights), cohort.contributions)
        return Weighing(weights, normaliser, state)

    def suffices(self, updates: int) -> bool:
        """Return whether so many updates, at least one, can make a version. It must depend on
        nothing else, so that a plan knows it too."""
        return True

    def step(self, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        """Return what is added to the model, and the next state. A rule that `optimises` implements
        it.

        Args:
            mean: the weighted sum of the updates divided by the normaliser, float64, shape
                (parameters,).
        """
        raise TypeError(f"{type(self).__name__} adds the weighted sum to the model")

    def combine(self, updates: Matrix, counted: int) -> FloatArray:
        """Return what is added to some coordinates of the model, float64, shape (coordinates,). A
        rule that `combines` implements it. The server calls it for one block of coordinates after
        the other.

        Args:
            updates: the updates whose weight is not 0, in the order of the contributions; float32,
                shape (updates, coordinates). The rule may overwrite them.
            counted: the number of updates that count, also those with weight 0.
        """
        raise TypeError(f"{type(self).__name__} combines updates by their weights")

    def prepare(self) -> None:
        """Import the slow modules that `weigh` needs. The server calls it while the fleet
        assembles."""

    def initial_state(self, model: Vector) -> State:
        """Return the state before the first round.

        Args:
            model: the initial parameters, float32, shape (parameters,).
        """
        return {}

    def next_state(self, state: State, model: Vector) -> State:
        """Return the state after a round that produced `model`. It is not called for an empty
        round."""
        return state

    def result(self, state: State, model: Vector) -> Vector:
        """Return the model that the run offers, float32, shape (parameters,).

        Args:
            model: the newest version.
        """
        return np.asarray(model)

    def needs(self) -> frozenset[Need]:
        """Return what the rule needs to know besides the contributions."""
        return frozenset()

    def features(self) -> Sequence[str]:
        """Return the features of the covariates Z whose population means the rule needs, written as
        in `muster.common.features`."""
        return ()

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Yield the reasons why the rule cannot work under these conditions, one sentence each;
        none if it can."""
        needs = self.needs()
        if self.weighs == "parameters" and conditions.gradient:
            yield (
                "it averages parameters, but with training.gradient devices return none; take a "
                "rule that weighs updates, for example fedavg"
            )
        if conditions.discounts and not self.discounts:
            yield (
                f"the weights of {self.kind!r} do not depend on how stale an update is; set "
                f"server.mode.staleness_weight = 'constant'"
            )
        changes_alike = self.optimises or self.combines or self.remembers
        adds_updates = self.weighs == "updates" and not changes_alike
        if conditions.masked and not (self.masks and adds_updates):
            yield (
                f"{self.kind!r} needs updates of the whole model, but a group has a mask; take "
                f"'fedplt', or another rule that works with masks (docs/masks.md), or leave out "
                f"groups.mask"
            )
        if Need.POPULATION in needs and not conditions.full:
            yield (
                "it needs covariates Z of devices that are not enrolled, but with "
                "server.information = 'limited' the server knows only the population's means; take "
                "'calibrated', which works with means, or set server.information = 'full'"
            )
        if needs & {Need.POPULATION, Need.MOMENTS} and not conditions.z:
            yield (
                "it corrects for covariates Z, but no group has any; name some in "
                "groups.covariates.z"
            )

    def objections(self, population: Population) -> Iterator[str]:
        """Yield the reasons why the rule cannot work for this population, one sentence each; none
        if it can."""
        yield from ()
