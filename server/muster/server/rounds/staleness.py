"""Staleness: how many versions an update is behind, whether that is too many, and what it costs.

Server, plan, audit and simulation all count staleness by this module, and the ledger records it
with every update. A weight of stale updates is the factor by which an update's weight falls with
its staleness.

The three functions are those of Xie, Koyejo, Gupta: Asynchronous Federated Optimization (2019),
section 5.2, where the third is called hinge.
"""

from abc import abstractmethod
from typing import Annotated

from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.bounds import NotNegative
from muster.common.plugins import Plugin, Registry


def staleness(newest: int, trained_from: int) -> int:
    """The number of versions that were made between the version that an update was trained from and
    the newest one when its round opened."""
    return newest - trained_from


def is_too_stale(staleness: int, most: int | None) -> bool:
    """Whether an update is too stale to count.

    Args:
        most: the largest staleness with which an update counts; None: any.
    """
    return most is not None and staleness > most


class StalenessWeight(Plugin):
    """A function of the staleness."""

    @abstractmethod
    def factor(self, staleness: int) -> float:
        """The factor, in (0, 1]; 1 for an update that is not stale."""


class Constant(StalenessWeight):
    """A stale update counts as much as a fresh one."""

    def factor(self, staleness: int) -> float:
        return 1.0


class Polynomial(StalenessWeight):
    """(1 + staleness)^(−exponent)."""

    exponent: NotNegative = 0.5
    """The exponent; FedBuff uses 0.5."""

    def factor(self, staleness: int) -> float:
        return float((1 + staleness) ** -self.exponent)


class Threshold(StalenessWeight):
    """1 up to `limit`, and 1 / (1 + slope · (staleness − limit)) beyond it."""

    limit: Annotated[int, Field(ge=0, le=1_000_000)] = 4
    """The largest staleness that costs nothing."""

    slope: NotNegative = 1.0
    """How fast the factor falls beyond `limit`."""

    def factor(self, staleness: int) -> float:
        return 1.0 / (1.0 + self.slope * max(0, staleness - self.limit))


STALENESS_WEIGHTS: Registry[StalenessWeight] = Registry(
    "staleness weight",
    "muster.staleness_weights",
    {"constant": Constant, "polynomial": Polynomial, "threshold": Threshold},
)
AnyStalenessWeight = Annotated[
    SerializeAsAny[StalenessWeight], BeforeValidator(STALENESS_WEIGHTS.parse)
]
"""A staleness weight as a setting."""
