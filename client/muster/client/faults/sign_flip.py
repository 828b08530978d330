"""The fault `sign-flip`."""

from dataclasses import replace

import numpy as np

from muster.client.faults.contract import UpdateFault
from muster.client.training.trainer import Trained


class SignFlip(UpdateFault):
    """The device sends the opposite of its update (Li et al., RSA: Byzantine-robust stochastic
    aggregation methods, AAAI 2019). It has the length of an honest one, so a limit of the norm does
    not notice it."""

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        return replace(trained, delta=-trained.delta)
