"""The bases of the rules that change the model by anything else than the weighted sum of the
updates, which `Aggregator` adds. Each makes the next version itself."""

import math
from abc import abstractmethod
from functools import partial
from itertools import compress

from muster.common.errors import RunFailed
from muster.common.exact_sum import moved
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.blocks import combined
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.values import CountedRound, MadeModel, Matrix, Retention, State


class Stepping(Aggregator):
    """A rule that changes the model by what `step` makes of s·Σ w_i·Δ_i / normaliser, for example
    by the step of an optimizer."""

    @abstractmethod
    def step(self, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        """Return what is added to the model, and the next state.

        Args:
            mean: the weighted sum of the updates divided by the normaliser, float64, shape
                (parameters,). With `control`, the means of both vectors of the updates, one after
                the other.
        """

    def make(self, model: Vector, round: CountedRound) -> MadeModel:
        """Return the model after the step, and the state that the step leaves."""
        mean = round.sum.total() * (round.scale / round.weighing.normaliser)
        step, state = self.step(mean, round.weighing.state)
        return MadeModel(moved(model, step), state)

    def adds_parts(self) -> bool:
        return False

    def vectors(self) -> int:
        return 2 if self.control else 1


class Combining(Aggregator):
    """A rule that changes the model by s·c, where `combine` makes c from the updates coordinate by
    coordinate, for example as their median. The weights only say which updates it gets: those whose
    weight is not 0. The server keeps the updates until the round closes."""

    @abstractmethod
    def combine(self, updates: Matrix, counted: int) -> FloatArray:
        """Return what is added to some coordinates of the model, float64, shape (coordinates,). The
        server calls it for one block of coordinates after the other.

        Args:
            updates: the updates whose weight is not 0, in the order of the contributions; float32,
                shape (updates, coordinates). The rule may overwrite them.
            counted: the number of updates that count, also those with weight 0.
        """

    def make(self, model: Vector, round: CountedRound) -> MadeModel:
        """Return the model after the updates are combined.

        Raises:
            RunFailed: all weights are 0, or `combine` returned an array of another shape.
        """
        reads = [update.body.read for update in compress(round.counted, round.weighing.weights)]
        combine = partial(self.combine, counted=len(round.counted))
        new = moved(model, combined(reads, len(model), combine) * round.scale)
        return MadeModel(new, round.weighing.state)

    def adds_up(self) -> bool:
        return False

    def computes_long(self) -> bool:
        return True


class Remembering(Aggregator):
    """A rule that changes the model by s·Σ w·(Δ_i − y_i) / normaliser + s·p·Σ y_j, where y_i is the
    last update of client i, and 0 before its first one. The first sum is over the round, the second
    one over all clients, and p is `Weighing.past`. Then y_i ← Δ_i for the clients of the round. The
    server keeps y_i, and folds when the round has closed."""

    def make(self, model: Vector, round: CountedRound) -> MadeModel:
        """Return the model that follows; the round's updates become the last ones.

        Raises:
            RunFailed: the weights differ, or are impossible.
        """
        weighing = round.weighing
        weight = weighing.weights[0]
        if set(weighing.weights) != {weight} or not 0 <= weight < math.inf:
            raise RunFailed(
                f"the aggregator {self.kind!r} remembers updates and gave them the weights "
                f"{sorted(set(weighing.weights))[:3]}; expected the same finite number >= 0 for all"
            )
        fresh, past = round.scale * (weight / weighing.normaliser), round.scale * weighing.past
        assert round.memory is not None
        new = round.memory.step(model, round.counted, round.number, fresh=fresh, past=past)
        return MadeModel(new, weighing.state)

    def adds_up(self) -> bool:
        return False

    def remembers(self) -> bool:
        return True


class Recalling(Aggregator):
    """A rule that changes the model by what is retained of all clients, with the weights a_j of
    `Weighing.recalled`, after the updates of the round have taken their places: see `retains`. It
    makes a version in every round, also if no update counts in it."""

    def retains(self) -> Retention:
        """Return what the server retains of every client.

        - update: y_j, the last update of client j. The next model is θ + Σ a_j·y_j / normaliser.
        - model: m_j, the version that client j trained from plus its last update. The next model is
          Σ a_j·m_j / normaliser, and for the share that these weights leave of 1, θ.
        """
        return "update"

    def make(self, model: Vector, round: CountedRound) -> MadeModel:
        """Return the model that follows.

        Raises:
            RunFailed: a client has no weight, or an impossible one.
        """
        weighing, people = round.weighing, round.population
        for client in compress(people.clients, people.enrolled):
            if not 0 <= (given := weighing.recalled.get(client, math.nan)) < math.inf:
                raise RunFailed(
                    f"the aggregator {self.kind!r} recalls what all devices have sent, and gave "
                    f"the weight {given} to {client}; expected a finite number >= 0 for each"
                )
        scale = round.scale / weighing.normaliser
        weights = {client: scale * weight for client, weight in weighing.recalled.items()}
        assert round.memory is not None
        of_round = round.counted, round.number, weights, self.retains()
        return MadeModel(round.memory.recall(model, *of_round), weighing.state)

    def adds_up(self) -> bool:
        return False

    def remembers(self) -> bool:
        return True

    def makes_every_version(self) -> bool:
        return True


class Strategy(Aggregator):
    """A rule whose versions the strategy of an app makes, in a process beside the server
    (`muster.server.strategy`). It also chooses the devices of a round. The weights are 1."""

    def make(self, model: Vector, round: CountedRound) -> MadeModel:
        raise TypeError(f"{type(self).__name__} leaves the versions to the strategy of an app")

    def adds_up(self) -> bool:
        return False

    def runs_strategy(self) -> bool:
        return True
