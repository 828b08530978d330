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
        lines: the links of the devices, if any of them varies over time; otherwise empty.
    """

    train_s: FloatArray
    transfer_s: FloatArray
    down_s: FloatArray
    up_s: FloatArray
    bytes_down: float
    bytes_up: float
    lines: Sequence[LinkModel] = ()

    def at(self, at_s: float) -> "Effort":
        """The effort of devices that are called at scenario second `at_s`."""
        if not self.lines:
            return self
        return _effort_at(at_s, self.train_s, self.lines, self.bytes_down, self.bytes_up)

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
    def longest_s(self) -> float:
        """The longest work of any device, whenever it is called."""
        if not self.lines:
            return float(self.work_s.max(initial=0.0))
        transfers_s = [line.bounds_s(self.bytes_down, self.bytes_up)[1] for line in self.lines]
        return float((self.train_s + transfers_s).max(initial=0.0))

    @property
    def devices(self) -> int:
        return len(self.train_s)


def effort_of(
    train_s: FloatArray, lines: Sequence[LinkModel], bytes_down: float, bytes_up: float
) -> Effort:
    """The effort of a round for devices with these links, if they are called at scenario second 0.

    Args:
        train_s: modelled seconds of training, shape (n,).
    """
    effort = _effort_at(0.0, train_s, lines, bytes_down, bytes_up)
    return effort if any(line.varies for line in lines) else effort._replace(lines=())


def _effort_at(
    at_s: float,
    train_s: FloatArray,
    lines: Sequence[LinkModel],
    bytes_down: float,
    bytes_up: float,
) -> Effort:
    traffic = bytes_down, bytes_up
    transfers = [
        line.transfers(*traffic, at_s, float(of_device))
        for line, of_device in zip(lines, train_s, strict=True)
    ]
    seconds = list(zip(lines, *zip(*transfers, strict=True), strict=True)) if transfers else []
    return Effort(
        train_s,
        np.array(
            [down_s + up_s + 2 * line.rtt_s + line.jitter_s(at_s) for line, down_s, up_s in seconds]
        ),
        np.array([down_s if line.down_bps else np.nan for line, down_s, _ in seconds]),
        np.array([up_s if line.up_bps else np.nan for line, _, up_s in seconds]),
        *traffic,
        lines,
    )
