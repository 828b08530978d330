"""Hypothesis strategies for tests of a rule: contributions, cohorts, availability and courses.

Hypothesis draws sizes and a seed, and the numbers follow from the seed. So an example costs little,
and a failing one shrinks within moments to few devices and rounds.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, note, reject, settings
from hypothesis import strategies as st

from muster.common.errors import Diverged
from muster.common.exchange import UtilityCurve, Valuation
from muster.common.tensors import Vector
from muster.server.aggregators import Contribution
from muster.testing.made_up import MadeUpCourse, MadeUpDevice, MadeUpRound, MadeUpUpdate

MOST_DEVICES = 6

T = TypeVar("T")


def for_all(values: st.SearchStrategy[T], check: Callable[[T], None], examples: int) -> None:
    """Check a number of examples, which are always the same. A failure shows the smallest one that
    Hypothesis finds. Examples with which the model diverges are left out."""

    def checked(value: T) -> None:
        note(value)  # shown for the smallest example that fails
        try:
            check(value)
        except Diverged:
            reject()

    play = given(values)(checked)
    settings(
        max_examples=examples,
        deadline=None,  # a test does not depend on the speed of the machine
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        # It would explain by lines of the kit and of NumPy, which say nothing to a user.
        phases=[phase for phase in settings().phases if phase is not Phase.explain],
    )(play)()


_SEEDS = st.integers(0, 2**16)


class _Draws:
    """Made-up values that follow from a seed.

    Args:
        extreme: whether numbers of examples go up to 2²⁶, or entries from 2⁻¹⁴⁹ to 10⁵ in size.
    """

    def __init__(self, seed: int, extreme: bool = False) -> None:
        self.random = np.random.default_rng(seed)
        # With both at once, sums would leave the range in which they are exact.
        self._most_bits, self._scales = 13, [0.0]
        if extreme and seed % 2:
            self._most_bits = 26
        elif extreme:
            self._most_bits, self._scales = 7, [-44.0, -30.0, -5.0, 0.0, 5.0]

    def vector(self, entries: int) -> Vector:
        values = 2 * self.random.standard_normal(entries)
        values *= 10.0 ** self.random.choice(self._scales, entries)
        return values.astype(np.float32)

    def contribution(self, client: str) -> Contribution:
        random = self.random
        return Contribution(
            client=client,
            group="made-up",
            examples=int(2 ** (random.random() * self._most_bits)),
            staleness=0,
            effective_steps=float(random.integers(1, 50)),
            initial_loss=float(random.random() * 5),
            learning_rate=float(random.choice([0.01, 0.1, 1.0])),
        )

    def updates(
        self, clients: Sequence[str], parameters: int, vectors_each: int
    ) -> list[MadeUpUpdate]:
        return [
            MadeUpUpdate(
                self.contribution(client),
                self.vector(parameters * vectors_each),
                self.random.random(parameters) < 0.6,
            )
            for client in clients
        ]

    def some(self, clients: Sequence[str], least: int, most: int) -> list[str]:
        """Some clients, in any order."""
        count = int(self.random.integers(min(least, len(clients)), min(most, len(clients)) + 1))
        return [clients[place] for place in self.random.permutation(len(clients))[:count]]

    def device(self, client: str) -> MadeUpDevice:
        age, wealth = self.random.standard_normal(2).tolist()
        return MadeUpDevice(client, (age, wealth), True, float(self.random.uniform(0.1, 1)))

    def valuation(self) -> Valuation:
        random = self.random
        curve = UtilityCurve(*random.uniform([0.1, 0.0, 0.1, 0.0], [2.0, 0.5, 1.0, 1.0]).tolist())
        received, own = random.random(2).tolist()
        return Valuation(
            received, own, curve, received > own, received_loss=2 * own, own_loss=2 * received
        )


def _each(made: Callable[..., T], *sizes: st.SearchStrategy[int]) -> st.SearchStrategy[T]:
    """What `made` makes of a seed and of sizes."""
    return st.tuples(_SEEDS, *sizes).map(lambda drawn: made(*drawn))


def contributions(client: str = "device-0") -> st.SearchStrategy[Contribution]:
    """What the server knows of an update that is not stale, with all facts that a rule may need."""
    return _each(lambda seed: _Draws(seed).contribution(client))


def cohorts(
    clients: Sequence[str], *, parameters: int, extreme: bool = False
) -> st.SearchStrategy[list[MadeUpUpdate]]:
    """The updates of some of these clients, at least one, in the order of their arrival.

    Args:
        parameters: length of the model.
        extreme: numbers of examples up to 2²⁶, or entries from 2⁻¹⁴⁹ to 10⁵ in size.
    """

    def made(seed: int, count: int) -> list[MadeUpUpdate]:
        draws = _Draws(seed, extreme)
        return draws.updates(draws.some(clients, count, count), parameters, 1)

    return _each(made, st.integers(1, len(clients)))


def availability(clients: Sequence[str], *, rounds: int) -> st.SearchStrategy[list[list[str]]]:
    """The clients that are there in each round; in some rounds nobody is."""
    here = st.lists(st.sampled_from(clients), unique=True)
    return st.lists(here, min_size=rounds, max_size=rounds)


def courses(
    *,
    vectors_each: int = 1,
    least_here: int = 0,
    most_here: int = MOST_DEVICES,
    rounds: int = 3,
    extreme: bool = False,
) -> st.SearchStrategy[MadeUpCourse]:
    """A population, a model of up to three parameters, and some rounds.

    Args:
        vectors_each: 2 if the rule has control variates, else 1.
        least_here, most_here: how many clients take part in a round.
        rounds: how many rounds there are at most.
        extreme: as in `cohorts`.
    """

    def made(seed: int, enrolled: int, outside: int, parameters: int, count: int) -> MadeUpCourse:
        draws = _Draws(seed, extreme)
        clients = [f"device-{place}" for place in range(enrolled)]
        played = []
        for _ in range(count):
            here = draws.some(clients, least_here, most_here)
            played.append(
                MadeUpRound(
                    draws.updates(here, parameters, vectors_each),
                    {c: (float(draws.random.standard_normal()), 0.5) for c in clients},
                    {c: draws.valuation() for c in here},
                )
            )
        others = [MadeUpDevice(f"outside-{place}", enrolled=False) for place in range(outside)]
        devices = [*map(draws.device, clients), *others]
        return MadeUpCourse(devices, draws.vector(parameters), played)

    sizes = st.integers(max(1, least_here), MOST_DEVICES), st.integers(0, 2), st.integers(1, 3)
    return _each(made, *sizes, st.integers(1, rounds))
