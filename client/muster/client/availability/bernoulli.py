"""Devices that toss a coin of their own every step."""

from typing import Annotated

import numpy as np
from pydantic import Field

from muster.client.availability.contract import Availability, Cast, Process, Scene
from muster.common.seeds import BoolArray, FloatArray


class _Bernoulli(Process):
    def __init__(self, cast: Cast, probability: float) -> None:
        super().__init__(cast)
        self._probability = probability
        self._draws = cast.numbers("availability")

    def on(self, scene: Scene) -> BoolArray:
        drawn: BoolArray = self._draws.at(scene.step)[:, 0] < self._probability
        return drawn

    def chance(self, scene: Scene) -> FloatArray:
        return np.full(len(self.cast.clients), self._probability)


class Bernoulli(Availability):
    """Every step anew, independently of the others and of what was."""

    probability: Annotated[float, Field(gt=0, le=1)]
    """Of being available in a step."""

    def process(self, cast: Cast) -> Process:
        return _Bernoulli(cast, self.probability)
