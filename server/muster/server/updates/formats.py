"""The formats of updates and downloads: each depends on its device and on the round of its call."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.common.body_sizes import body_sizes
from muster.common.compression import Codec, Whole
from muster.common.exchange import Key
from muster.common.masks import GroupMasks, Mask
from muster.common.secure.grid import SumFormat
from muster.common.tensors import WIRE
from muster.server.fleet.fleet import Fleet
from muster.server.updates.uploads import UpdateFormat


class TrainedPart(NamedTuple):
    """The part of the model that some devices of a round have in common.

    Attributes:
        mask: its coordinates; None: the whole model.
        places: where the updates of these devices are among all that were asked about.
    """

    mask: Mask | None
    places: list[int]


class UpdateFormats:
    """The formats that the bodies of updates must have, and what devices download.

    Attributes:
        sizes: the largest bodies, by group. Without masks all bodies of a group have these lengths.
        masked: whether any group trains parts of the model.
        entries: length of the vectors of an update of the whole model, together.
        whole_bytes: length of such an update as float32, and of a download of the whole model.

    Args:
        codecs: the codec of each group's updates; a group without one sends them uncompressed.
        masks: the masks of each group whose devices train parts of the model.
        entries: number of entries of an update of the whole model: its parameters, or twice as many
            if control variates travel too.
        max_norm: the largest norm that an update may have; None: no limit.
        sums: how devices send their updates for secure sums; None: they send them by themselves.
    """

    def __init__(
        self,
        codecs: Mapping[str, Codec],
        masks: Mapping[str, GroupMasks],
        entries: int,
        max_norm: float | None,
        fleet: Fleet,
        sums: SumFormat | None = None,
    ) -> None:
        groups = {device.group: Whole(kind="none") for device in fleet.devices.values()}
        self._whole = {
            group: UpdateFormat(codec, entries, max_norm)
            for group, codec in {**groups, **codecs}.items()
        }
        self._masks = masks
        self._fleet = fleet
        self.masked = bool(masks)
        self.entries = entries
        self.whole_bytes = entries * WIRE.itemsize
        self.sizes = {
            group: body_sizes(entries, format.codec, masks.get(group), sums)
            for group, format in self._whole.items()
        }

    def of(self, key: Key) -> UpdateFormat:
        """The format that an update with this key must have."""
        whole = self._whole[self._fleet.devices[key.client].group]
        mask = self.mask_of(key) if self.masked else None
        return whole if mask is None else UpdateFormat(whole.codec, mask.size, whole.max_norm, mask)

    def mask_of(self, key: Key) -> Mask | None:
        """The coordinates that a device trains for a call; None: the whole model."""
        if not self.masked:  # asked several times for every update
            return None
        device = self._fleet.devices[key.client]
        masks = self._masks.get(device.group)
        return None if masks is None else masks.of(device.client, device.index, key.round)

    def parts(self, keys: Sequence[Key]) -> list[TrainedPart]:
        """The parts that devices train for some calls, by the first of their devices in the
        population."""
        found: dict[bytes, TrainedPart] = {}
        indices = [self._fleet.devices[key.client].index for key in keys]
        for place in sorted(range(len(keys)), key=indices.__getitem__):
            mask = self.mask_of(keys[place])
            part = mask.part if mask is not None else b""
            found.setdefault(part, TrainedPart(mask if part else None, [])).places.append(place)
        return list(found.values())

    def narrow(self, group: str) -> bool:
        """Whether the devices of a group download only the coordinates that they train."""
        return group in self._masks and self._masks[group].narrow

    def slice_of(self, key: Key) -> Mask | None:
        """The coordinates that a device downloads for a call; None: the whole model."""
        if not self.masked:
            return None
        group = self._fleet.devices[key.client].group
        return self.mask_of(key) if self.narrow(group) else None

    def mask_ratio(self, key: Key) -> float:
        """The share of the model that a device trains for a call."""
        mask = self.mask_of(key) if self.masked else None
        return 1.0 if mask is None else mask.ratio
