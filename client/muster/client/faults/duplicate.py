"""The fault `duplicate`."""

from typing import Annotated

from pydantic import Field

from muster.client.faults.contract import UpdateFault
from muster.common.faults import LedgerTrace


class DuplicateUpdate(UpdateFault):
    """The device sends its update more than once, as after an acknowledgement that was lost. The
    server counts it once, so the model does not change."""

    times: Annotated[int, Field(ge=1, le=100)] = 1
    """How often the update is sent once more."""

    def copies(self) -> int:
        return self.times

    def observed(self, trace: LedgerTrace) -> bool:
        """The server recorded a duplicate."""
        return any(outcome == "duplicate" for outcome, _ in trace.updates)
