"""The fault `wrong-shape`."""

from typing import Annotated

from pydantic import Field

from muster.client.faults.contract import UpdateFault
from muster.common.exchange import Body
from muster.common.faults import LedgerTrace


class WrongShape(UpdateFault):
    """The device sends an update of another length, as a client of an older model would. The server
    refuses it by its header."""

    extra_bytes: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    """Number of zero bytes that follow the update."""

    def rewrite(self, body: Body) -> Body:
        return bytes(body) + bytes(self.extra_bytes)

    def observed(self, trace: LedgerTrace) -> bool:
        """The server refused the update because of its length."""
        return ("refused", "length") in trace.updates
