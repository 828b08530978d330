"""The contract of a kind of mask.

A mask is a function of the model, the settings, the device, the round of its call, and the seed.
The server and the device both compute it, so nothing about it is transferred.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

from muster.common.masks.units import Layout
from muster.common.plugins import Plugin
from muster.common.seeds import BoolArray


class MaskCall(NamedTuple):
    """The work for which a mask is made.

    Attributes:
        place: the device's position in the population, from 0.
        round: the round of the call, from 1.
    """

    client: str
    place: int
    round: int


Schedule = Literal["static", "rotating", "drawn"]

MaskName = tuple[str | int, ...]
"""The name of a mask within a group: calls with the same name have the same mask."""


class MaskMaker(ABC):
    """Makes the masks of the devices of a group.

    Attributes:
        largest: the largest number of coordinates that a mask can have.
    """

    largest: int

    @abstractmethod
    def name(self, call: MaskCall) -> MaskName:
        """Return the name of the mask of a call."""

    @abstractmethod
    def make(self, name: MaskName) -> BoolArray:
        """Return whether each coordinate is in the mask of this name, shape (parameters,)."""


class Masking(Plugin):
    """Which part of the model each device of a group trains in a round. The part's size is the
    device's `capacity`, the largest share of the model's parameters that it trains."""

    schedule: Schedule = "rotating"
    """static: a device trains the same part in every round. rotating: the next part follows in
    every round. drawn: the part is drawn anew for each device and round."""

    @abstractmethod
    def maker(self, layout: Layout, capacity: float, seed: int) -> MaskMaker:
        """Return what makes the masks of a group.

        Args:
            capacity: the largest share of the parameters that a device trains, in (0, 1].
            seed: the scenario's.

        Raises:
            ConfigError: there is no such mask for this model and capacity.
        """

    def narrows(self) -> bool:
        """Return whether a device computes with the coordinates of its mask alone, as if the others
        were 0. It then downloads only these; otherwise it downloads the whole model."""
        return False


def budget(layout: Layout, capacity: float) -> int:
    """The largest number of coordinates that a device of this capacity trains."""
    # Rounded first, because 0.29 · 100 is 28.999999999999996, which must not give 28.
    return math.floor(round(capacity * layout.parameters, 6))
