"""Devices that can always be reached; the template of a process."""

import numpy as np

from muster.client.availability.contract import Availability, Cast, Process, Scene
from muster.common.seeds import BoolArray, FloatArray


class _Always(Process):
    def on(self, scene: Scene) -> BoolArray:
        return np.ones(len(self.cast.clients), dtype=np.bool_)

    def chance(self, scene: Scene) -> FloatArray:
        return np.ones(len(self.cast.clients))

    def still_on(self, scene: Scene, until_s: FloatArray) -> BoolArray:
        return self.on(scene)


class Always(Availability):
    """It can be reached at every moment."""

    def process(self, cast: Cast) -> Process:
        return _Always(cast)
