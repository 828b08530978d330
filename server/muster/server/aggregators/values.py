"""The values that go into a rule and come out of it, apart from what it knows (`facts`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from muster.common.exact_sum import ExactSum
from muster.common.masks import Mask
from muster.common.tensors import Vector
from muster.server.aggregators.coverage import Coverage
from muster.server.aggregators.facts import Contribution
from muster.server.knowledge.population import Population

State = Mapping[str, npt.NDArray[Any]]
"""Named arrays of any fixed dtype; empty for a rule that remembers nothing."""

Matrix = npt.NDArray[np.float32]
"""Some coordinates of several vectors, one vector in a row."""

Retention = Literal["update", "model"]
"""What a rule retains of every client: see `Recalling.retains`."""


class Weighing(NamedTuple):
    """The weights that a rule gives to the updates of a round.

    Attributes:
        weights: one per contribution, in their order; finite, >= 0.
        normaliser: the divisor of the weighted sum; if it is 0, the round is empty.
        state: the rule's next state.
        estimates: the quantities that the weights are based on, for the ledger. By name, each is a
            number, a word, or a table of these by name.
        warnings: sentences for people.
        past: for `Remembering`, the factor p of the sum of the last updates of all clients before
            this round. The weights must all be the same.
        recalled: for `Recalling`, the weights of all enrolled clients, finite and >= 0, by client.
    """

    weights: Sequence[float]
    normaliser: float
    state: State
    estimates: Mapping[str, Any] = {}
    warnings: Sequence[str] = ()
    past: float = 0.0
    recalled: Mapping[str, float] = {}


class UpdateBody(Protocol):
    """The vector of an update, in memory or on disk."""

    def read(self, start: int, stop: int) -> Vector:
        """Return entries [start, stop)."""

    def close(self) -> None:
        """Release the vector, which nobody reads again."""


class CountingUpdate(Protocol):
    """An update that counts in a round."""

    @property
    def contribution(self) -> Contribution: ...

    @property
    def body(self) -> UpdateBody: ...


class LastUpdates(Protocol):
    """What the server keeps of every client. `muster.server.updates.memory` has it in a file."""

    def step(
        self,
        model: Vector,
        updates: Sequence[CountingUpdate],
        round: int,
        *,
        fresh: float,
        past: float,
    ) -> Vector:
        """Put updates in the place of the last ones of their clients, and release their bodies.

        Returns:
            model + fresh · Σ (Δ_i − y_i) + past · Σ y_j, where y are the last updates before.
        """

    def recall(
        self,
        model: Vector,
        updates: Sequence[CountingUpdate],
        round: int,
        weights: Mapping[str, float],
        retention: Retention = "update",
    ) -> Vector:
        """Put what a round retains of its clients in the place of what was retained before, and
        release the bodies of its updates.

        Returns:
            With y_j for what is retained after the exchange, model + Σ weight_j · y_j; or, if these
            are models, Σ weight_j · y_j + (1 − Σ weight_j) · model.
        """


class CountedRound(NamedTuple):
    """A round at its close, as a rule makes a version from it.

    Attributes:
        number: the number of the round.
        counted: the updates that count.
        weighing: the weights of the rule; the normaliser is not 0.
        sum: Σ w·Δ of the updates that count, if the rule adds them up.
        population: the devices.
        scale: s, the factor of the weighted sum.
        has_bases: the sum has the base versions too, so that it is Σ w·θ.
        masks: the coordinates that each update has, if devices may train parts of the model.
        coverage: room to compute how many updates have each coordinate; there if `masks` are.
        memory: what is kept of every client, if the rule remembers.
    """

    number: int
    counted: Sequence[CountingUpdate]
    weighing: Weighing
    sum: ExactSum
    population: Population
    scale: float = 1.0
    has_bases: bool = False
    masks: Sequence[Mask | None] | None = None
    coverage: Coverage | None = None
    memory: LastUpdates | None = None


class MadeModel(NamedTuple):
    """The model that a round made.

    Attributes:
        state: the state of the rule after the round.
        estimates: what was found on the way, for the ledger.
    """

    model: Vector
    state: State
    estimates: Mapping[str, Any] = {}
