"""The fault `false-examples`."""

import math
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from muster.client.faults.contract import UpdateFault, not_one
from muster.client.training.trainer import Trained
from muster.common.faults import LedgerTrace

_MOST = 2**53


class FalseExamples(UpdateFault):
    """The device reports another number of examples than it holds, to weigh more or less. The
    server refuses more examples than the device enrolled with, so only a factor below 1 passes."""

    factor: Annotated[float, Field(gt=0, le=1e6), AfterValidator(not_one)] = 10.0
    """Factor of the number of examples; at least one example is reported. 1 would change
    nothing."""

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        claimed = min(max(1, math.floor(trained.examples * self.factor)), _MOST)
        return replace(trained, examples=claimed)

    def observed(self, trace: LedgerTrace) -> bool:
        """The server refused the number; with a factor of at most 1: it judged the update."""
        if self.factor > 1:
            return ("refused", "examples") in trace.updates
        return super().observed(trace)
