"""The fault `replay`."""

from collections.abc import Iterator

from muster.client.faults.contract import UpdateFault
from muster.common.faults import FaultConditions, LedgerTrace


class Replay(UpdateFault):
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
        """The server recorded a late or repeated update of the round before."""
        return any(outcome in ("duplicate", "late") for outcome, _ in trace.updates)
