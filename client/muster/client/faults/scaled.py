"""The fault `scaled`."""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from muster.client.faults.contract import UpdateFault
from muster.client.trainer import Trained
from muster.common.bounds import LARGEST


class Scaled(UpdateFault):
    """The device sends a multiple of its update. A large factor boosts its influence (Bagdasaryan
    et al., How to backdoor federated learning, AISTATS 2020); a negative one works against
    learning."""

    factor: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] = 10.0
    """Factor of the update; 1 would change nothing."""

    @field_validator("factor")
    @classmethod
    def _changes(cls, factor: float) -> float:
        if factor == 1:
            raise ValueError("1 changes nothing; expected another factor, or leave out the fault")
        return factor

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        return replace(trained, delta=trained.delta * np.float32(self.factor))
