"""Slices: the parts of model versions that devices with narrower models download."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from muster.common.masks import Mask
from muster.common.tensors import Vector
from muster.wire.bodies import body_view, checksum

KEPT_BYTES = 32 << 20


class Slice(NamedTuple):
    """The body of a part of a version, and its checksum."""

    body: memoryview
    checksum: bytes


class Slices:
    """Makes slices when they are needed and keeps them for a while. Devices of a group that train
    the same slice share it.

    Args:
        kept_bytes: slices are forgotten, beginning with the one that was not used for the longest
            time, while they take more than this. The newest one is always kept.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = kept_bytes
        self._held = 0
        self._kept: OrderedDict[tuple[int, Mask], Slice] = OrderedDict()

    def of(self, version: int, part: Mask, vector: Callable[[], Vector]) -> Slice:
        """The slice of a version.

        Args:
            vector: returns the version, if the slice has to be made.
        """
        found = self._kept.get((version, part))
        if found is not None:
            self._kept.move_to_end((version, part))
            return found
        body = body_view(part.compact(vector()))
        made = self._kept[version, part] = Slice(body, checksum(body))
        self._held += len(body)
        while self._held > self._most and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self._held -= len(old.body)
        return made
