"""The fault `huge`."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.client.faults.contract import UpdateFault
from muster.client.training.trainer import Trained


class Huge(UpdateFault):
    """Every entry of the update has the same enormous size, with random signs. Without a limit of
    the norm (`server.guard.max_norm`) or a robust rule, it destroys the model."""

    size: Annotated[float, Field(gt=0, le=1e12)] = 1e6
    """Absolute value of every entry."""

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        signs = draws.integers(0, 2, len(trained.delta)) * 2 - 1
        return replace(trained, delta=(signs * self.size).astype(np.float32))
