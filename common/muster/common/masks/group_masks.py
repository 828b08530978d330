"""The masks of a group's devices, made when they are needed and kept for a while."""

from collections import OrderedDict

from muster.common.masks.contract import MaskCall, Masking, MaskName
from muster.common.masks.mask import Mask
from muster.common.masks.units import Layout

_KEPT_BYTES = 32 << 20
_MOST_KEPT = 4096


class GroupMasks:
    """The masks of the devices of a group.

    Attributes:
        largest: the largest number of coordinates that a mask of the group can have. The models of
            links and batteries take it for the size of every update of the group.
        narrow: whether the devices download only the coordinates of their masks, and compute with
            these alone.

    Args:
        capacity: the largest share of the parameters that a device trains.
        seed: the scenario's.

    Raises:
        ConfigError: there is no such mask for this model and capacity.
    """

    def __init__(self, masking: Masking, layout: Layout, capacity: float, seed: int) -> None:
        self._maker = masking.maker(layout, capacity, seed)
        self.largest = self._maker.largest
        self.narrow = masking.narrows()
        self._kept: OrderedDict[MaskName, Mask] = OrderedDict()
        size = layout.parameters // 8 + 200
        self._most = max(2, min(_MOST_KEPT, _KEPT_BYTES // size))

    def of(self, client: str, place: int, round: int) -> Mask:
        """The mask of a device for a call.

        Args:
            place: the device's position in the population.
            round: the round of the call.
        """
        name = self._maker.name(MaskCall(client, place, round))
        mask = self._kept.get(name)
        if mask is None:
            mask = self._kept[name] = Mask(self._maker.make(name))
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(name)
        return mask
