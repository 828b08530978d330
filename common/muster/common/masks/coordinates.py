"""Masks of single coordinates."""

import numpy as np

from muster.common.errors import ConfigError
from muster.common.masks.contract import MaskCall, Masking, MaskMaker, MaskName, budget
from muster.common.masks.units import Layout
from muster.common.seeds import BoolArray, stream


class Coordinates(Masking):
    """Single coordinates, whatever they belong to: exactly the share `capacity`, rounded down.

    static and rotating: windows that follow each other in one random order of all coordinates,
    which all devices have in common, so that coverage is even. drawn: a random order for each
    device and round.
    """

    def maker(self, layout: Layout, capacity: float, seed: int) -> MaskMaker:
        if (size := budget(layout, capacity)) < 1:
            raise ConfigError(
                f"the capacity {capacity:g} is less than one of the model's {layout.parameters:,} "
                f"parameters; expected at least {1 / layout.parameters:.4g}"
            )
        return _CoordinateMaker(layout.parameters, size, self.schedule, seed)


class _CoordinateMaker(MaskMaker):
    def __init__(self, parameters: int, size: int, schedule: str, seed: int) -> None:
        self.largest = size
        self._parameters = parameters
        self._schedule = schedule
        self._seed = seed

    def name(self, call: MaskCall) -> MaskName:
        if self._schedule == "drawn":
            return call.client, call.round
        number = call.place + (call.round - 1 if self._schedule == "rotating" else 0)
        return (number * self.largest % self._parameters,)

    def make(self, name: MaskName) -> BoolArray:
        drawn = self._schedule == "drawn"
        draws = stream(self._seed, "mask", *(name if drawn else ()))
        order, start = draws.permutation(self._parameters), 0 if drawn else int(name[0])
        chosen = np.zeros(self._parameters, np.bool_)
        chosen[order[start : start + self.largest]] = True
        chosen[order[: max(0, start + self.largest - self._parameters)]] = True
        return chosen
