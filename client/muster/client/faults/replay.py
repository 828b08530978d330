"""The fault `replay`."""

from collections.abc import Sequence
from typing import ClassVar

from muster.client.faults.contract import UpdateFault
from muster.common.faults import LedgerTrace
from muster.common.requirements import Requirement

_REPEATED = frozenset({("duplicate", ""), ("late", "round closed")})
"""Outcome and reason of an update that came once more."""


class ReplayedUpdate(UpdateFault):
    """Beside its update, the device sends again the update of the last round for which it worked,
    under its old key. The server recognises the key and does not count the update again, so the
    model does not change. In the first round of a device there is nothing to replay."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.KEPT_UPDATE})

    def repeats_last(self) -> bool:
        return True

    def observed(self, trace: LedgerTrace) -> bool:
        """The server recorded a repeated update of the round before."""
        return any(update in _REPEATED for update in trace.earlier)

    def seen(self, traces: Sequence[LedgerTrace]) -> str:
        count = sum(update in _REPEATED for trace in traces for update in trace.earlier)
        return f"{count} × earlier update again"
