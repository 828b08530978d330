"""What faults change on the link of a device, and what they make of it together. It does no I/O.

Rates multiply, and a fault of the gateway overrides everything: through a link that is cut, no rate
matters.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from muster.emulator.gateway.faults import Fault
from muster.emulator.links.shape import Shape


class LinkChange(NamedTuple):
    """What one fault changes on a link while it lasts.

    Attributes:
        faults: faults at the gateway.
        rate_factor: factor of the rates of the device's own link.
    """

    faults: tuple[Fault, ...] = ()
    rate_factor: float = 1.0


class LinkState(NamedTuple):
    """What holds on a link.

    Attributes:
        faults: the active faults at the gateway, by key.
        shape: fields of its Shape, in SI units, of those that faults can change.
    """

    faults: Mapping[tuple[str, str | None], Fault]
    shape: Mapping[str, float | None]


def state_of(nominal: Shape, changes: Sequence[LinkChange]) -> LinkState:
    """What holds on a link under some changes.

    Args:
        nominal: the shape of the link without faults.
    """
    factor = prod(change.rate_factor for change in changes)

    def scaled(bps: float | None) -> float | None:
        return None if bps is None else bps * factor

    return LinkState(
        faults={fault.key: fault for change in changes for fault in change.faults},
        shape={"down_bps": scaled(nominal.down_bps), "up_bps": scaled(nominal.up_bps)},
    )
