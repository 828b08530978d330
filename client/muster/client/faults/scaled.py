"""The fault `scaled`."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from muster.client.faults.contract import UpdateFault, not_one
from muster.client.training.trainer import Trained
from muster.common.bounds import LARGEST


class Scaled(UpdateFault):
    """The device sends a multiple of its update. A large factor boosts its influence (Bagdasaryan
    et al., How to backdoor federated learning, AISTATS 2020); a negative one works against
    learning."""

    factor: Annotated[float, Field(ge=-LARGEST, le=LARGEST), AfterValidator(not_one)] = 10.0
    """Factor of the update; 1 would change nothing."""

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        return replace(trained, delta=trained.delta * np.float32(self.factor))
