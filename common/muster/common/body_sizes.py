"""The sizes of the bodies that travel for the calls of a group."""

from typing import NamedTuple

from muster.common.compression import Codec
from muster.common.masks import GroupMasks
from muster.common.tensors import WIRE


class BodySizes(NamedTuple):
    """The largest bodies that travel for a call, in bytes. The models of links and batteries take
    them for the sizes of every call of the group.

    Attributes:
        down: what the device downloads.
        up: its update.
    """

    down: int
    up: int


def body_sizes(entries: int, codec: Codec, masks: GroupMasks | None) -> BodySizes:
    """The sizes of a group.

    Args:
        entries: number of entries of a body of the whole model: its parameters, or twice as many
            if control variates travel too.
        masks: None: the devices train the whole model.
    """
    if masks is None:
        return BodySizes(entries * WIRE.itemsize, codec.length(entries))
    downloaded = masks.largest if masks.narrow else entries
    return BodySizes(downloaded * WIRE.itemsize, codec.length(masks.largest))
