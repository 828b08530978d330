"""The fault `free-rider`."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.client.faults.contract import UpdateFault
from muster.client.training.trainer import Trained


class FreeRider(UpdateFault):
    """The device returns the model that it got, and claims its examples and local steps as if it
    had trained (Lin et al., Free-riders in federated learning, arXiv:1911.12560)."""

    noise: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Standard deviation of Gaussian noise with which the device hides that it changed nothing."""

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        delta = np.zeros_like(trained.delta)
        if self.noise:
            delta = (draws.standard_normal(len(delta)) * self.noise).astype(np.float32)
        return replace(trained, delta=delta)
