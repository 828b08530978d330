"""The fault `churn`."""

from typing import Annotated, ClassVar

from pydantic import Field

from muster.emulator.faults.catalogue.killing import KillingFault


class Churn(KillingFault):
    """Every time it occurs, other devices die: a share of the targets, drawn anew from the seed.
    They come back when it is healed. Use it with `every_rounds` or `every_s`."""

    needs_end: ClassVar[bool] = True

    share_percent: Annotated[float, Field(gt=0, le=100)] = 20.0
    """Share of the targets that die each time, in percent; at least one."""

    def each_percent(self) -> float | None:
        return self.share_percent
