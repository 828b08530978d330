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

Other rules change the model differently, which they declare in `change`: by an optimizer's step, by
a combination of the updates other than their sum, with the last updates of all clients, or by the
strategy of an app.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.plugins import Plugin
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.facts import Cohort, Conditions, Contribution, Need
from muster.server.aggregators.requirements import Requirement
from muster.server.knowledge.population import Population

State = Mapping[str, npt.NDArray[Any]]
"""Named arrays of any fixed dtype; empty for a rule that remembers nothing."""

Matrix = npt.NDArray[np.float32]
"""Some coordinates of several vectors, one vector in a row."""


Change = Literal["sum", "step", "combination", "memory", "recall", "strategy"]
"""How a rule changes the model: see `Aggregator.change`."""

Retention = Literal["update", "model"]
"""What a rule retains of every client: see `Aggregator.retains`."""


_REQUIREMENTS: Mapping[Need, tuple[Requirement, ...]] = {
    Need.POPULATION: (Requirement.POPULATION, Requirement.COVARIATES),
    Need.MOMENTS: (Requirement.COVARIATES,),
    Need.PARTICIPATION: (Requirement.SAME_ROUND,),
    Need.PROPENSITIES: (Requirement.TRUE_PROPENSITIES,),
    Need.SHARES: (Requirement.TRUE_SHARES,),
    Need.STEPS: (Requirement.LOCAL_STEPS,),
    Need.LOSS: (Requirement.LOSSES,),
}
"""What a rule requires because of what it needs to know."""


class Weighing(NamedTuple):
    """The weights that a rule gives to the updates of a round.

    Attributes:
        weights: one per contribution, in their order; finite, >= 0.
        normaliser: the divisor of the weighted sum; if it is 0, the round is empty.
        state: the rule's next state.
        estimates: the quantities that the weights are based on, for the ledger. By name, each is a
            number, a word, or a table of these by name.
        warnings: sentences for people.
        past: if the model changes by memory, the factor p of the sum of the last updates of all
            clients before this round. The weights must all be the same.
        recalled: if the model changes by recall, the weights of all enrolled clients, finite and
            >= 0, by client.
    """

    weights: Sequence[float]
    normaliser: float
    state: State
    estimates: Mapping[str, Any] = {}
    warnings: Sequence[str] = ()
    past: float = 0.0
    recalled: Mapping[str, float] = {}


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

    change: ClassVar[Change] = "sum"
    """How the model changes.

    - sum: by s·Σ w_i·Δ_i, as above.
    - step: by what `step` makes of s·Σ w_i·Δ_i.
    - combination: by s·c. `combine` makes c from the updates coordinate by coordinate, for example
      as their median. The weights only say which updates it gets: those whose weight is not 0. The
      server keeps the updates until the round closes.
    - memory: by s·Σ w·(Δ_i − y_i) + p·Σ y_j, where y_i is the last update of client i, and 0 before
      its first one. The first sum is over the round, the second one over all clients. Then y_i ←
      Δ_i for the clients of the round. The server keeps y_i, and folds when the round has closed.
    - recall: by what is retained of all clients, with the weights a_j of `Weighing.recalled`, after
      the updates of the round have taken their places: see `Aggregator.retains`. The rule makes a
      version in every round, also if no update counts in it.
    - strategy: to what the strategy of an app makes of the updates, in a process beside the server
      (`muster.server.strategy`). It also chooses the devices of a round. The weights are 1.
    """

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "on-arrival"
    """on-arrival: `weight` gives the weight of an update when it arrives. at-close: the weights
    depend on the set of clients in the round, so the server folds the updates after it closed."""

    discounts: ClassVar[bool] = True
    """Whether a stale update weighs less, by the mode's discount. If not, the rule is refused
    together with a `staleness_weight` other than "constant"."""

    control: ClassVar[bool] = False
    """Whether devices correct their local steps by control variates (SCAFFOLD). Then a download has
    a second vector after the model, `control_variate`, and an update a second vector after Δ_i, the
    change of the device's own control variate. `step` gets the mean of both, one after the other.
    The rule must change the model by a step, and weigh all updates alike."""

    announces: ClassVar[bool] = False
    """Whether devices are told their weights in the model (`announced`)."""

    masks: ClassVar[bool] = False
    """Whether devices may train parts of the model. The rule must weigh updates, and change the
    model by their weighted sum. The sum is then taken over the updates that have a coordinate, and
    multiplied by ψ (see `compensates`). A coordinate that no update has keeps its value."""

    def compensates(self) -> bool:
        """Return whether, if devices train parts of the model, the weighted sum of a coordinate is
        multiplied by ψ = Σ w_i / Σ w_i·m_i, with m_i = 1 if update i has the coordinate, else 0.
        Without ψ, a coordinate that few updates have moves less."""
        return True

    def folds_on_arrival(self) -> bool:
        """Return whether an update can be folded when it arrives: its weight is known then, and
        nothing needs it again."""
        return self.weights == "on-arrival" and not self.asks_again()

    def asks_again(self) -> bool:
        """Return whether the rule needs each update by itself, and not only their weighted sum."""
        return self.change not in ("sum", "step") or Need.DISTANCES in self.needs()

    def adds_parts(self) -> bool:
        """Return whether the rule works with updates of parts of the model."""
        return self.masks and self.weighs == "updates" and self.change == "sum"

    def weight(self, contribution: Contribution, state: State) -> float:
        """Return the weight of one update, finite and >= 0. A rule whose weights are known on
        arrival implements it."""
        raise TypeError(f"{type(self).__name__} gives its weights at close")

    def discounted(self, contribution: Contribution, state: State) -> float:
        """Return the weight of one update, times the discount of a stale one."""
        return self.weight(contribution, state) * contribution.discount

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        """Return the divisor of the weighted sum; a round whose normaliser is 0 is empty."""
        return weight_sum

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights of a round. The default asks `weight`, times the discount of stale
        updates, and `normaliser`; a rule that needs the whole round overrides it."""
        weights = [self.discounted(c, state) for c in cohort.contributions]
        normaliser = self.normaliser(math.fsum(weights), cohort.contributions)
        return Weighing(weights, normaliser, state)

    def suffices(self, updates: int) -> bool:
        """Return whether so many updates, at least one, can make a version. It must depend on
        nothing else, so that a plan knows it too."""
        return True

    def step(self, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        """Return what is added to the model, and the next state. A rule whose change is a
        step implements it.

        Args:
            mean: the weighted sum of the updates divided by the normaliser, float64, shape
                (parameters,).
        """
        raise TypeError(f"{type(self).__name__} adds the weighted sum to the model")

    def combine(self, updates: Matrix, counted: int) -> FloatArray:
        """Return what is added to some coordinates of the model, float64, shape (coordinates,). A
        rule whose change is a combination implements it. The server calls it for one block of
        coordinates after the other.

        Args:
            updates: the updates whose weight is not 0, in the order of the contributions; float32,
                shape (updates, coordinates). The rule may overwrite them.
            counted: the number of updates that count, also those with weight 0.
        """
        raise TypeError(f"{type(self).__name__} combines updates by their weights")

    def retains(self) -> Retention:
        """Return what the server retains of every client, if the rule changes the model by recall.

        - update: y_j, the last update of client j. The next model is θ + Σ a_j·y_j / normaliser.
        - model: m_j, the version that client j trained from plus its last update. The next model is
          Σ a_j·m_j / normaliser, and for the share that these weights leave of 1, θ.
        """
        return "update"

    def vectors(self) -> int:
        """Return the number of vectors in a download, and in an update."""
        return 2 if self.control else 1

    def control_variate(self, state: State) -> Vector:
        """Return the control variate that devices get with the model, float32, shape (parameters,).
        A rule with `control` implements it."""
        raise TypeError(f"{type(self).__name__} sends no control variate")

    def announced(self, state: State, devices: int) -> FloatArray:
        """Return the weights that the version of this state gives to the enrolled devices, in the
        order of the population, shape (devices,). A rule that announces weights implements it."""
        raise TypeError(f"{type(self).__name__} announces no weights")

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

    def requires(self) -> frozenset[Requirement]:
        """Return what the rule requires of its scenario, as far as it follows from the declarations
        above. `combinations` says with what a requirement excludes. A rule that requires more
        adds to it."""
        declared = {
            Requirement.EACH_UPDATE: self.asks_again(),
            Requirement.WHOLE_UPDATES: not self.adds_parts(),
            Requirement.EQUAL_STALENESS: not self.discounts,
            Requirement.TRAINED_PARAMETERS: self.weighs == "parameters",
            Requirement.CONTROL_VARIATES: self.control,
            Requirement.PLAIN_SGD: self.control,
            Requirement.OWN_WEIGHTS: not self.private,
            Requirement.STRATEGY: self.change == "strategy",
        }
        named = (requirement for requirement, holds in declared.items() if holds)
        return frozenset(named).union(*(_REQUIREMENTS.get(need, ()) for need in self.needs()))

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Yield the reasons of its own why the rule cannot work under these conditions, one
        sentence each; none if it can. What `requires` names is refused without it."""
        if self.control and self.change != "step":
            yield (
                f"{self.kind!r} has control variates, for which a rule needs change = 'step', but "
                f"has change = {self.change!r}"
            )

    def objections(self, population: Population) -> Iterator[str]:
        """Yield the reasons why the rule cannot work for this population, one sentence each; none
        if it can."""
        yield from ()
