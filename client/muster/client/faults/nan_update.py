"""The fault `nan`."""

from dataclasses import replace

import numpy as np

from muster.client.faults.contract import UpdateFault
from muster.client.training.trainer import Trained
from muster.common.faults import LedgerTrace


class NanUpdate(UpdateFault):
    """The device sends an update that is not a number anywhere, as after a training that diverged.
    The server refuses it, because one such value would make the whole model NaN."""

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        return replace(trained, delta=np.full_like(trained.delta, np.nan))

    def observed(self, trace: LedgerTrace) -> bool:
        """The server refused the update as not finite."""
        return ("refused", "not finite") in trace.updates
