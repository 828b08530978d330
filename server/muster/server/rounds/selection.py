"""Whom a round calls: one class per policy.

A policy draws from a named stream of the round, so the same seed selects the same devices.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from muster.common.bounds import DeviceCount
from muster.common.plugins import Plugin, Registry

Draws = Callable[[], np.random.Generator]


class Candidate(NamedTuple):
    """An enrolled device that may be called."""

    client: str
    examples: int


class Selection(Plugin):
    """A policy of whom to call."""

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        """The clients to call, in the order of `candidates`.

        Args:
            draws: makes the stream of the round, for a policy that draws.
        """
        raise NotImplementedError

    def goal(self) -> int | None:
        """Updates that close a round, where the policy itself says so."""
        return None


class SelectAll(Selection):
    """Everybody."""

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        return [candidate.client for candidate in candidates]


class _KOf(Selection):
    k: DeviceCount
    """Devices wanted per round; all of them where there are fewer."""

    over_selection: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Call k times this many, rounded up, and close the round with the first k updates. Production
    systems call 1.3 times as many (Bonawitz et al., MLSys 2019, section 9)."""

    def goal(self) -> int | None:
        return self.k if self.over_selection > 1 else None

    def called(self, candidates: int) -> int:
        # The small allowance keeps 10 * 1.1 = 11.000000000000002 from calling a twelfth device.
        return min(candidates, math.ceil(self.k * self.over_selection - 1e-9))


class UniformSelection(_KOf):
    """k devices, each set equally likely."""

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        chosen = draws().choice(len(candidates), self.called(len(candidates)), replace=False)
        return [candidates[i].client for i in sorted(chosen)]


class WeightedSelection(_KOf):
    """k devices without replacement, each draw in proportion to the examples a device holds."""

    def select(self, candidates: Sequence[Candidate], draws: Draws) -> list[str]:
        # The k largest of log w + Gumbel noise are a draw without replacement (Efraimidis,
        # Spirakis, Weighted random sampling with a reservoir, 2006; Gumbel form).
        weights = np.array([candidate.examples for candidate in candidates], dtype=np.float64)
        keys = np.log(weights) + draws().gumbel(size=len(candidates))
        chosen = np.argsort(-keys, kind="stable")[: self.called(len(candidates))]
        return [candidates[i].client for i in sorted(chosen)]


SELECTIONS: Registry[Selection] = Registry(
    "selection",
    "muster.selections",
    {"all": SelectAll, "uniform": UniformSelection, "weighted": WeightedSelection},
)
