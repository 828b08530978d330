"""Masks that are narrower copies of the model.

static: Diao et al., HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients, ICLR 2021, section 3. https://arxiv.org/abs/2010.01264
rotating: Alam et al., FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
Extraction, NeurIPS 2022, equation 3. https://arxiv.org/abs/2212.01548
drawn: Caldas et al., Expanding the Reach of Federated Learning by Reducing Client Resource
Requirements, 2018, section 3.2 (federated dropout). https://arxiv.org/abs/1812.07210
"""

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np

from muster.common.errors import ConfigError
from muster.common.masks.blocks import require_units
from muster.common.masks.contract import MaskCall, Masking, MaskMaker, MaskName, Schedule, budget
from muster.common.masks.units import Layout
from muster.common.seeds import BoolArray, IntArray, stream


class Width(Masking):
    """A narrower model: the weights among s · U units of every hidden layer of U units, with the
    largest s that fits into the capacity, and with at least one unit.

    static: the first units, so that the slices of smaller capacities lie inside those of larger
    ones. rotating: in round t the units from t - 1 on, and the first ones after the last. drawn:
    any units. Static and rotating masks are the same for all devices of a round that have the same
    capacity. A weight belongs to the slice if all of its units do. What belongs to no unit, for
    example the bias of the outputs, belongs to every slice.
    """

    schedule: Schedule = "static"
    """static: a device trains the same part in every round. rotating: the next part follows in
    every round. drawn: the part is drawn anew for each device and round."""

    download: Literal["slice", "model"] = "slice"
    """What a device gets. slice: only its slice, and it computes with the narrower model, as in the
    papers. model: the whole model, with which it computes; it trains its slice of it."""

    def narrows(self) -> bool:
        return self.download == "slice"

    def maker(self, layout: Layout, capacity: float, seed: int) -> MaskMaker:
        require_units(layout, self.kind)
        counts = _counts(layout, budget(layout, capacity))
        if counts is None:
            least = layout.submodel_size([1] * len(layout.layers)) / layout.parameters
            raise ConfigError(
                f"the capacity {capacity:g} is smaller than the narrowest slice, one unit of every "
                f"layer; expected at least {least:.4g}, or another kind of mask"
            )
        return _WidthMaker(layout, counts, self.schedule, seed)


def _counts(layout: Layout, most: int) -> list[int] | None:
    """The numbers of units of the widest slice with at most `most` coordinates; None if there is
    none."""
    layers = set(layout.layer_units)
    widths = sorted({Fraction(n, units) for units in layers for n in range(1, units + 1)})

    def counts(width: Fraction) -> list[int]:
        return [max(1, int(width * units)) for units in layout.layer_units]

    fitting = bisect_right(widths, most, key=lambda width: layout.submodel_size(counts(width)))
    return counts(widths[fitting - 1]) if fitting else None


class _WidthMaker(MaskMaker):
    def __init__(self, layout: Layout, counts: Sequence[int], schedule: str, seed: int) -> None:
        self._layout = layout
        self._counts = counts
        self._schedule = schedule
        self._seed = seed
        self.largest = layout.submodel_size(counts)

    def name(self, call: MaskCall) -> MaskName:
        if self._schedule == "drawn":
            return call.client, call.round
        if self._schedule == "static":
            return ()
        return tuple((call.round - 1) % units for units in self._layout.layer_units)

    def make(self, name: MaskName) -> BoolArray:
        return self._layout.submodel(self._kept(name))

    def _kept(self, name: MaskName) -> list[IntArray]:
        both = list(zip(self._counts, self._layout.layer_units, strict=True))
        if self._schedule == "drawn":
            draws = stream(self._seed, "mask", *name)
            return [draws.permutation(units)[:count] for count, units in both]
        firsts = [int(first) for first in name] or [0] * len(both)
        return [
            (np.arange(count) + first) % units
            for (count, units), first in zip(both, firsts, strict=True)
        ]
