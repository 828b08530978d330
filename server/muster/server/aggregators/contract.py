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

Other rules change the model differently, and derive from another base (`bases`): by an optimizer's
step, by a combination of the updates other than their sum, with the last updates of all clients, or
by the strategy of an app.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from muster.common.exact_sum import apply
from muster.common.plugins import Plugin
from muster.common.requirements import Requirement
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.coverage import apply_covered
from muster.server.aggregators.facts import Cohort, Conditions, Contribution, Need
from muster.server.aggregators.values import CountedRound, MadeModel, Retention, State, Weighing
from muster.server.knowledge.population import Population

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


_BASES = {
    "sum": "Aggregator",
    "step": "Stepping",
    "combination": "Combining",
    "memory": "Remembering",
    "recall": "Recalling",
    "strategy": "Strategy",
}
"""The base that stands for each value of `change`, which rules declared before there were bases."""


class Aggregator(Plugin):
    """A rule that combines the updates of a round into the next version of the model: by their
    weighted sum, as above, unless it derives from one of the other bases. Its settings are its
    fields."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "updates"
    """Whether the weights apply to the updates Δ_i or to the parameters θ_i."""

    mixes: ClassVar[bool] = False
    """For a rule that weighs parameters: whether the model keeps the share that the weights,
    divided by the normaliser, leave of 1."""

    private: ClassVar[bool] = False
    """Whether the rule still makes sense if the server clips updates, weighs all devices alike and
    adds noise (`server.privacy`): whether it uses the mean of the updates and nothing else."""

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "on-arrival"
    """on-arrival: `weight` gives the weight of an update when it arrives. at-close: the weights
    depend on the set of clients in the round, so the server folds the updates after it closed."""

    discounts: ClassVar[bool] = True
    """Whether a stale update weighs less, by the mode's discount. If not, the rule is refused
    together with a `staleness_weight` other than "constant"."""

    control: ClassVar[bool] = False
    """Whether devices correct their local steps by control variates (SCAFFOLD). Then a download has
    a second vector after the model, `control_variate`, and an update a second vector after Δ_i, the
    change of the device's own control variate. Only a `Stepping` can have them, and it must weigh
    all updates alike."""

    announces: ClassVar[bool] = False
    """Whether devices are told their weights in the model (`announced`)."""

    masks: ClassVar[bool] = False
    """Whether devices may train parts of the model. The rule must weigh updates, and add their
    weighted sum. The sum is then taken over the updates that have a coordinate, and multiplied by ψ
    (see `compensates`). A coordinate that no update has keeps its value."""

    change: ClassVar[str]
    """No longer in use: it said what the base of a rule says now."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse `change`.

        Raises:
            TypeError: the class sets it.
        """
        super().__init_subclass__(**kwargs)
        if "change" in vars(cls):
            found = vars(cls)["change"]
            expected = _BASES.get(found, f"one of {', '.join(_BASES.values())}")
            raise TypeError(
                f"{cls.__name__} sets change = {found!r}, which its base says now; derive it from "
                f"muster.server.aggregators.{expected} instead, and leave change out"
            )

    def make(self, model: Vector, round: CountedRound) -> MadeModel:
        """Return the version that follows on `model`. A weighted sum makes κ·model + s·Σ w·Δ /
        normaliser. The state is that of the weighing, unless making the version changes it.

        Raises:
            Diverged: the model has an entry that is not finite.
            RunFailed: the weights are impossible.
        """
        if round.masks is not None:
            return self._made_where_trained(model, round)
        weights, normaliser, keep = round.weighing.weights, round.weighing.normaliser, 1.0
        if self.weighs == "parameters":
            share = math.fsum(weights) / normaliser
            keep = 1.0 - share if self.mixes else 0.0
            if not round.has_bases:
                keep += share
        new = apply(model, round.sum, keep=keep, scale=round.scale, normaliser=normaliser)
        return MadeModel(new, round.weighing.state)

    def _made_where_trained(self, model: Vector, round: CountedRound) -> MadeModel:
        """model + s·ψ ⊙ Σ w·m⊙Δ / normaliser, with the coverage of its coordinates."""
        coverage, weighing = round.coverage, round.weighing
        assert coverage is not None
        assert round.masks is not None
        of_round = weighing.weights, weighing.normaliser, self.compensates()
        coverage.enter(round.masks, *of_round)
        new = apply_covered(model, round.sum, coverage, round.scale)
        return MadeModel(new, weighing.state, {"coverage": coverage.shares()})

    def adds_up(self) -> bool:
        """Return whether the rule changes the model by the weighted sum of the updates, so that the
        server adds each to a sum and needs it no more."""
        return True

    def remembers(self) -> bool:
        """Return whether the server keeps the last update of every client for the rule."""
        return False

    def makes_every_version(self) -> bool:
        """Return whether every round makes a version, also if no update counts in it."""
        return False

    def computes_long(self) -> bool:
        """Return whether `make` takes long even if the model is small."""
        return False

    def runs_strategy(self) -> bool:
        """Return whether the strategy of an app makes the versions, in a process beside the
        server."""
        return False

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
        return not self.adds_up() or Need.DISTANCES in self.needs()

    def adds_parts(self) -> bool:
        """Return whether the rule works with updates of parts of the model."""
        return self.masks and self.weighs == "updates" and self.adds_up()

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

    def retains(self) -> Retention:
        """Return what the server keeps of every client, if it does: see `Recalling.retains`."""
        return "update"

    def vectors(self) -> int:
        """Return the number of vectors in a download, and in an update."""
        return 1

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
            Requirement.KNOWN_COHORT: self.weights == "at-close",
            Requirement.REMEMBERED: self.remembers() and self.retains() == "update",
            Requirement.EQUAL_STALENESS: not self.discounts,
            Requirement.TRAINED_PARAMETERS: self.weighs == "parameters",
            Requirement.CONTROL_VARIATES: self.control,
            Requirement.PLAIN_SGD: self.control,
            Requirement.OWN_WEIGHTS: not self.private,
            Requirement.STRATEGY: self.runs_strategy(),
        }
        named = (requirement for requirement, holds in declared.items() if holds)
        return frozenset(named).union(*(_REQUIREMENTS.get(need, ()) for need in self.needs()))

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        """Yield the reasons of its own why the rule cannot work under these conditions, one
        sentence each; none if it can. What `requires` names is refused without it."""
        if self.control and self.vectors() == 1:
            yield (
                f"{self.kind!r} has control variates, but adds no step of its own; derive its "
                f"class from muster.server.aggregators.Stepping"
            )

    def objections(self, population: Population) -> Iterator[str]:
        """Yield the reasons why the rule cannot work for this population, one sentence each; none
        if it can."""
        yield from ()
