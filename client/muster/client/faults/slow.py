"""The fault `slow`."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from muster.client.faults.contract import LifeEffect, LifeFault
from muster.common.faults import LedgerTrace
from muster.common.requirements import Requirement


class Slow(LifeFault):
    """The device trains more slowly: its modelled seconds of training are multiplied. Updates may
    miss the deadline, and more work is interrupted. Needs `device.examples_per_s`, without which
    training counts as 0 seconds."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.SPEED})

    compares: ClassVar[bool] = True

    factor: Annotated[float, Field(gt=1, le=1e6)] = 4.0
    """Factor of the modelled seconds of training."""

    def effect(self) -> LifeEffect:
        return LifeEffect(slowdown=self.factor)

    def observed(self, trace: LedgerTrace) -> bool:
        """The modelled work took longer than the device's work in rounds outside of the fault, or
        the update of a device that had worked before was late."""
        if trace.usual_s is None:
            return False
        late = any(outcome == "late" for outcome, _ in trace.updates)
        return late or (trace.modelled_s or 0.0) > trace.usual_s * 1.001

    def seen(self, traces: Sequence[LedgerTrace]) -> str:
        factors = [
            trace.modelled_s / trace.usual_s
            for trace in traces
            if trace.modelled_s and trace.usual_s
        ]
        if not factors:
            return super().seen(traces)
        return f"work took {min(factors):.3g} to {max(factors):.3g} times as long"
