"""What faults change on the link of a device, and what they make of it together. It does no I/O.

rates             multiply
delays            add up
jitter            the variances add up, as for independent random numbers
loss              a packet arrives if no fault loses it: 1 - p = product of all 1 - p
bytes             the smallest number counts
flap              the fault counts that is down for the largest part of the time
everything else   acts as long as any fault asks for it, and overrides the shape of the link
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.emulator.gateway.faults import Fault
from muster.emulator.links.shape import Shape

_MOST_LOSS = 0.5
"""The largest share of lost packets that a gateway emulates."""


class LinkChange(NamedTuple):
    """What one fault changes on a link while it lasts.

    Attributes:
        faults: faults at the gateway.
        rate_factor: factor of the rates of the device's own link.
        rtt_s: seconds that are added to the round trip.
        jitter_s: standard deviation, in seconds, of further jitter.
        loss: share of the packets that are lost in addition.
    """

    faults: tuple[Fault, ...] = ()
    rate_factor: float = 1.0
    rtt_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0


class LinkState(NamedTuple):
    """What holds on a link.

    Attributes:
        faults: the active faults at the gateway, by key.
    """

    faults: Mapping[tuple[str, str | None], Fault]
    shape: Shape

    @property
    def changed(self) -> dict[str, float | None]:
        """The fields of the shape that faults can change."""
        return self.shape.model_dump(include=set(_CHANGED))


_CHANGED = ("down_bps", "up_bps", "rtt_s", "jitter_s", "loss")


def state_of(nominal: Shape, changes: Sequence[LinkChange]) -> LinkState:
    """What holds on a link under some changes.

    Args:
        nominal: the shape of the link without faults.
    """
    faults: dict[tuple[str, str | None], Fault] = {}
    for fault in (fault for change in changes for fault in change.faults):
        held = faults.get(fault.key)
        faults[fault.key] = fault if held is None else min(held, fault, key=_mildness)
    return LinkState(faults, shape_of(nominal, changes))


def shape_of(nominal: Shape, changes: Sequence[LinkChange]) -> Shape:
    """The shape of a link under some changes."""
    if not changes:
        return nominal
    factor = math.prod(change.rate_factor for change in changes)
    arrives = (1 - nominal.loss) * math.prod(1 - change.loss for change in changes)
    update = {
        "down_bps": None if nominal.down_bps is None else nominal.down_bps * factor,
        "up_bps": None if nominal.up_bps is None else nominal.up_bps * factor,
        "rtt_s": nominal.rtt_s + sum(change.rtt_s for change in changes),
        "jitter_s": math.hypot(nominal.jitter_s, *(change.jitter_s for change in changes)),
        "loss": min(_MOST_LOSS, max(nominal.loss, 1 - arrives)),
    }
    return nominal.model_copy(update=update)


def _mildness(fault: Fault) -> float:
    """The smaller, the harder the fault is; among faults with the same key."""
    if fault.bytes is not None:
        return fault.bytes
    if fault.up_s is not None and fault.down_s is not None:
        return fault.up_s / fault.down_s
    return 0.0
