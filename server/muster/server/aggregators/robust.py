"""The base classes of the rules that resist wrong updates, whatever their senders intend.

Such a rule trusts nothing that a device states about itself. It therefore counts every update
alike, whatever the number of examples behind it.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from muster.common.bounds import DEVICES
from muster.server.aggregators.bases import Combining
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Cohort, Conditions
from muster.server.aggregators.values import State, Weighing

_ROUNDING = 1e-9
"""Without this allowance, 0.29·100 = 28.999999999999996 would be rounded down to 28."""


class Robust(Aggregator):
    """A rule that resists wrong updates."""

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"

    discounts: ClassVar[bool] = False


class Coordinatewise(Combining, Robust):
    """A rule that combines the updates coordinate by coordinate. All updates get the weight 1."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        size = len(cohort.contributions)
        return Weighing([1.0] * size, float(size), state)


class Chosen(NamedTuple):
    """The updates that go into the next version.

    Attributes:
        weights: one per contribution, in their order; 0 for an update that is set aside.
        estimates: what the choice rests on, for the ledger.
    """

    weights: list[float]
    estimates: dict[str, Any]


class Tolerant(Robust):
    """A rule that tolerates f wrong updates in a round, and for that needs a certain number of
    updates. A round with fewer is empty, with a warning."""

    byzantine: Annotated[int, Field(ge=0, le=DEVICES)] | None = None
    """f, the number of updates of a round that may be wrong. Absent: it follows from
    `byzantine_ratio`."""

    byzantine_ratio: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """The share of the updates of a round that may be wrong: f is this share of their number,
    rounded down. The default is an assumption. It has no effect if `byzantine` is given."""

    def tolerated(self, size: int) -> int:
        """Return f for a round with `size` updates."""
        if self.byzantine is not None:
            return self.byzantine
        return int(self.byzantine_ratio * size + _ROUNDING)

    @abstractmethod
    def needed(self, f: int) -> int:
        """Return the number of updates that a round needs to tolerate f wrong ones."""

    @abstractmethod
    def choose(self, cohort: Cohort, f: int) -> Chosen:
        """Choose updates of a round that has enough of them."""

    def suffices(self, updates: int) -> bool:
        return updates >= self.needed(self.tolerated(updates))

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights that `choose` gives; the normaliser is their sum."""
        size = len(cohort.contributions)
        f = self.tolerated(size)
        if not self.suffices(size):
            warning = (
                f"a round with {size} updates is empty: the rule needs at least {self.needed(f)} "
                f"to tolerate {f} wrong ones"
            )
            return Weighing([0.0] * size, 0.0, state, {"byzantine": f}, [warning])
        weights, estimates = self.choose(cohort, f)
        return Weighing(weights, math.fsum(weights), state, {"byzantine": f, **estimates})

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        least, most = min(conditions.least, conditions.most), conditions.most
        if not any(self.suffices(size) for size in range(most, least - 1, -1)):
            f = self.tolerated(most)
            yield (
                f"{self.kind!r} needs at least {self.needed(f)} updates in a round to tolerate {f} "
                f"wrong ones, but at most {most} can count; expect fewer wrong ones with "
                f"`byzantine` or `byzantine_ratio`, or let more updates count"
            )
