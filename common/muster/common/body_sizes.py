"""The sizes of the bodies that travel for the calls of a group."""

from typing import NamedTuple

from muster.common.compression import Codec
from muster.common.masks import GroupMasks
from muster.common.secure.grid import SumFormat
from muster.common.tensors import WIRE


class BodySizes(NamedTuple):
    """The largest bodies that travel for a call, in bytes. The models of links and batteries take
    them for the sizes of every call of the group.

    Attributes:
        down: what the device downloads, and what the server asks it for a secure sum.
        up: its update, or its part in a secure sum.
    """

    down: int
    up: int


def body_sizes(
    entries: int, codec: Codec, masks: GroupMasks | None, sums: SumFormat | None
) -> BodySizes:
    """The sizes of a group.

    Args:
        entries: number of entries of a body of the whole model: its parameters, or twice as many
            if control variates travel too.
        masks: None: the devices train the whole model.
        sums: how they send their updates for secure sums; None: they send them by themselves.
    """
    trained = entries if masks is None else masks.largest
    down = (trained if masks is not None and masks.narrow else entries) * WIRE.itemsize
    if sums is None:
        return BodySizes(down, codec.length(trained))
    asked, sent = sums.traffic(trained)
    return BodySizes(down + asked, sent)
