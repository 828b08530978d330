"""Device selection: the policies that choose which devices a round calls, one class each.

A policy draws from a named random stream of the round, so the same seed selects the same devices.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from muster.common.bounds import DeviceCount
from muster.common.plugins import Plugin, Registry

Draws = Callable[[], np.random.Generator]
"""Makes the random stream of a round."""


class Candidate(NamedTuple):
    """An enrolled device that may be called."""

    client: str
    examples: int


class Selection(Plugin):
    """A policy that selects the devices to call."""

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        """The clients to call, in the order of `candidates`.

        Args:
            draws: makes the random stream of the round; a policy without randomness ignores it.
        """
        raise NotImplementedError

    def prefers(self) -> bool:
        """Whether some devices may be called more often than others that are there as often."""
        return True

    def goal(self) -> int | None:
        """The number of updates that closes a round; None if the policy does not set one."""
        return None

    def most(self) -> int | None:
        """The largest number of updates that can count in a round; None if the policy does not
        limit it."""
        return None


class SelectAll(Selection):
    """All devices that may be called."""

    def prefers(self) -> bool:
        return False

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        return [candidate.client for candidate in candidates]


class _KOf(Selection):
    k: DeviceCount
    """Number of devices wanted per round. If there are fewer, all are called."""

    over_selection: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Factor by which more devices than k are called: k times this factor, rounded up. If it is
    above 1, the first k updates close the round. Production systems use 1.3 (Bonawitz et al., MLSys
    2019, section 9)."""

    def goal(self) -> int | None:
        return self.k if self.over_selection > 1 else None

    def most(self) -> int | None:
        return self.k

    def called(self, candidates: int) -> int:
        """The number of devices to call if there are so many candidates."""
        # Without the small allowance, 10 * 1.1 = 11.000000000000002 would call a twelfth device.
        return min(candidates, math.ceil(self.k * self.over_selection - 1e-9))


class UniformSelection(_KOf):
    """k devices without replacement; every set of k devices is equally likely."""

    def prefers(self) -> bool:
        return False

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        chosen = draws().choice(len(candidates), self.called(len(candidates)), replace=False)
        return [candidates[i].client for i in sorted(chosen)]


class WeightedSelection(_KOf):
    """k devices without replacement; each draw selects a device with a probability in proportion
    to the number of its examples."""

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        # The devices with the k largest values of log w + Gumbel noise are such a draw (Efraimidis,
        # Spirakis, Weighted random sampling with a reservoir, 2006; Gumbel form).
        weights = np.array([candidate.examples for candidate in candidates], dtype=np.float64)
        keys = np.log(weights) + draws().gumbel(size=len(candidates))
        chosen = np.argsort(-keys, kind="stable")[: self.called(len(candidates))]
        return [candidates[i].client for i in sorted(chosen)]


class SelectNamed(Selection):
    """The devices that a strategy names. No scenario has this policy."""

    clients: frozenset[str]

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        return [each.client for each in candidates if each.client in self.clients]


SELECTIONS: Registry[Selection] = Registry(
    "selection",
    "muster.selections",
    {"all": SelectAll, "uniform": UniformSelection, "weighted": WeightedSelection},
)
