"""Masks: which coordinates of the model a device trains and returns (partial models).

A kind of mask is a plug-in without torch and without I/O. `Layout` describes the model,
`GroupMasks` has the masks of a group's devices, and `Mask` is one set of coordinates:

    masks = GroupMasks(Blocks(kind="blocks"), Layout(schema, layers), capacity=0.25, seed=7)
    mask = masks.of("phones-0003", place=3, round=12)
    body = codec.encode(mask.compact(delta), draws)
"""

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.common.masks.blocks import Blocks
from muster.common.masks.contract import MaskCall, Masking, MaskMaker, MaskName
from muster.common.masks.coordinates import Coordinates
from muster.common.masks.group_masks import GroupMasks
from muster.common.masks.mask import Mask
from muster.common.masks.tensors import Tensors
from muster.common.masks.units import Layout, UnitAxis, UnitLayer
from muster.common.masks.width import Width
from muster.common.plugins import Registry

BUILT_IN: dict[str, type[Masking]] = {
    "tensors": Tensors,
    "blocks": Blocks,
    "width": Width,
    "random": Coordinates,
}
MASKINGS = Registry("mask", "muster.masks", BUILT_IN)
AnyMasking = Annotated[SerializeAsAny[Masking], BeforeValidator(MASKINGS.parse)]
"""A kind of mask as a setting."""

__all__ = [
    "BUILT_IN",
    "MASKINGS",
    "AnyMasking",
    "GroupMasks",
    "Layout",
    "Mask",
    "MaskCall",
    "MaskMaker",
    "MaskName",
    "Masking",
    "Tensors",
    "UnitAxis",
    "UnitLayer",
    "Width",
]
