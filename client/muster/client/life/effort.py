"""The modelled effort of a round's work: seconds of training and of transfers, and bytes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.common.lines import LinkModel
from muster.common.seeds import FloatArray


class Effort(NamedTuple):
    """The modelled effort of a round's work for every device; arrays of shape (n,).

    Attributes:
        train_s: seconds of training.
        transfer_s: seconds of the transfers of model and update; 0 if no link is emulated.
        down_s, up_s: seconds of the transfers in which the radio receives and sends. NaN stands for
            `bytes_down` or `bytes_up` over the nominal rate of the device's network.
    """

    train_s: FloatArray
    transfer_s: FloatArray
    down_s: FloatArray
    up_s: FloatArray
    bytes_down: float
    bytes_up: float

    def slowed(self, factor: FloatArray) -> "Effort":
        """The effort of devices whose training takes `factor` times as long, shape (n,)."""
        return self._replace(train_s=self.train_s * factor)

    def alone(self) -> "Effort":
        """The effort of devices that train a model of their own, and send no update. It decides
        what their batteries lose."""
        return self._replace(up_s=np.zeros_like(self.up_s))

    @property
    def work_s(self) -> FloatArray:
        """Seconds from the call to the end of the work."""
        work_s: FloatArray = self.train_s + self.transfer_s
        return work_s

    @property
    def devices(self) -> int:
        return len(self.train_s)


def effort_of(
    train_s: FloatArray, lines: Sequence[LinkModel], bytes_down: float, bytes_up: float
) -> Effort:
    """The effort of a round for devices with these links.

    Args:
        train_s: modelled seconds of training, shape (n,).
    """
    down_s = [line.down_s(bytes_down) if line.down_bps else np.nan for line in lines]
    up_s = [line.up_s(bytes_up) if line.up_bps else np.nan for line in lines]
    transfer_s = [line.transfer_s(bytes_down, bytes_up) for line in lines]
    return Effort(
        train_s, np.array(transfer_s), np.array(down_s), np.array(up_s), bytes_down, bytes_up
    )
