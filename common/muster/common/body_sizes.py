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


def body_sizes(parameters: int, codec: Codec, masks: GroupMasks | None) -> BodySizes:
    """The sizes of a group.

    Args:
        parameters: number of parameters of the model.
        masks: None: the devices train the whole model.
    """
    if masks is None:
        return BodySizes(parameters * WIRE.itemsize, codec.length(parameters))
    downloaded = masks.largest if masks.narrow else parameters
    return BodySizes(downloaded * WIRE.itemsize, codec.length(masks.largest))
