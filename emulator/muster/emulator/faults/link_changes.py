"""What faults change on the link of a device, and what they make of it together. It does no I/O.

rates             factors multiply; of absolute rates, the smallest counts
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

from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.faults import Fault
from muster.emulator.links.shape import Shape, SharedState

_MOST_LOSS = 0.5
"""The largest share of lost packets that a gateway emulates."""


class LinkChange(NamedTuple):
    """What one fault changes on a link while it lasts.

    Attributes:
        faults: faults at the gateway.
        rate_factor: factor of the rates of the device's own link.
        most_bps: its rates are at most this, in bits per second; infinite: no limit.
        ways: the directions whose rates change.
        rtt_s: seconds that are added to the round trip.
        jitter_s: standard deviation, in seconds, of further jitter.
        loss: share of the packets that are lost in addition.
    """

    faults: tuple[Fault, ...] = ()
    rate_factor: float = 1.0
    most_bps: float = math.inf
    ways: Sequence[Direction] = DIRECTIONS
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


_CHANGED = (
    "down_bps", "up_bps", "most_down_bps", "most_up_bps", "trace_down_factor", "trace_up_factor",
    "rtt_s", "jitter_s", "loss", "loss_down", "loss_up",
)  # fmt: skip


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
    arrives = math.prod(1 - change.loss for change in changes)
    update: dict[str, float | None] = {
        "rtt_s": nominal.rtt_s + sum(change.rtt_s for change in changes),
        "jitter_s": math.hypot(nominal.jitter_s, *(change.jitter_s for change in changes)),
    }
    for field in ("loss", "loss_down", "loss_up"):
        if (share := getattr(nominal, field)) is not None:
            update[field] = min(_MOST_LOSS, max(share, 1 - (1 - share) * arrives))
    for way in DIRECTIONS:
        update |= _rates(nominal, way, [change for change in changes if way in change.ways])
    return nominal.model_copy(update=update)


def shared_state_of(changes: Sequence[LinkChange]) -> SharedState:
    """What holds on a shared link under some changes of its rates."""
    fields: dict[str, float | None] = {}
    for way in DIRECTIONS:
        of_way = [change for change in changes if way in change.ways]
        most_bps = min((change.most_bps for change in of_way), default=math.inf)
        fields[f"{way}_factor"] = math.prod(change.rate_factor for change in of_way)
        fields[f"most_{way}_bps"] = None if math.isinf(most_bps) else most_bps
    return SharedState.model_validate(fields)


def _rates(
    nominal: Shape, way: Direction, changes: Sequence[LinkChange]
) -> dict[str, float | None]:
    """The fields of the rates in one direction."""
    factor = math.prod(change.rate_factor for change in changes)
    most_bps, bps = min((change.most_bps for change in changes), default=math.inf), nominal.bps(way)
    return {
        f"{way}_bps": None if bps is None else bps * factor,
        f"trace_{way}_factor": factor if nominal.trace(way) is not None else 1.0,
        f"most_{way}_bps": None if math.isinf(most_bps) else most_bps,
    }


def _mildness(fault: Fault) -> float:
    """The smaller, the harder the fault is; among faults with the same key."""
    if fault.bytes is not None:
        return fault.bytes
    if fault.up_s is not None and fault.down_s is not None:
        return fault.up_s / fault.down_s
    return 0.0
