"""Control variates on a device: how SCAFFOLD changes them.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning, ICML 2020, Algorithm 1, lines 10 to 13 with option II.
https://arxiv.org/abs/1910.06378
"""

from typing import NamedTuple

import numpy as np

from muster.client.training.trainer import Trained
from muster.common.tensors import Vector


class Control(NamedTuple):
    """The control variates with which a device trains, float32, shape (parameters,) each.

    Attributes:
        server: c, which came with the model.
        own: c_i, which the device keeps.
    """

    server: Vector
    own: Vector

    @classmethod
    def of(cls, server: Vector, kept: bytes) -> "Control":
        """The control variates of a call.

        Args:
            kept: c_i as the device keeps it; empty: 0.
        """
        return cls(server, np.frombuffer(kept, np.float32) if kept else np.zeros_like(server))

    def correction(self) -> Vector:
        """c − c_i, which is added to the gradient of every local step."""
        return self.server - self.own

    def change(self, trained: Trained, rate: float) -> Vector:
        """Δc_i = −c − Δ/(K·η); 0 if there was no step, because then no gradient was seen.

        Args:
            rate: η of the local steps.
        """
        if not trained.train_steps:
            return np.zeros_like(self.own)
        return -self.server - trained.delta / np.float32(trained.train_steps * rate)
