"""The fault `replay`."""

from collections.abc import Iterator, Sequence

from muster.client.faults.contract import UpdateFault
from muster.common.faults import FaultConditions, LedgerTrace

_REPEATED = frozenset({("duplicate", ""), ("late", "round closed")})
"""Outcome and reason of an update that came once more."""


class ReplayedUpdate(UpdateFault):
    """Beside its update, the device sends again the update of the last round for which it worked,
    under its old key. The server recognises the key and does not count the update again, so the
    model does not change. In the first round of a device there is nothing to replay."""

    def refusals(self, conditions: FaultConditions) -> Iterator[str]:
        for group in conditions.groups:
            if group.packed:
                yield (
                    f"replay sends an update that the device has kept, but devices that share a "
                    f"process keep none; expected devices_per_process = 1 in group {group.name!r}"
                )

    def repeats_last(self) -> bool:
        return True

    def observed(self, trace: LedgerTrace) -> bool:
        """The server recorded a repeated update of the round before."""
        return any(update in _REPEATED for update in trace.earlier)

    def seen(self, traces: Sequence[LedgerTrace]) -> str:
        count = sum(update in _REPEATED for trace in traces for update in trace.earlier)
        return f"{count} × earlier update again"
