"""Updates that do not count, or were counted before. The server still enters them in the
account."""

from collections import Counter
from collections.abc import Mapping

from muster.common.clock import Clock
from muster.common.errors import RemoteProtocolError
from muster.common.events import Duplicate, Late, Refused, Tell
from muster.common.exchange import Outcome, Reason, Receipt, Update
from muster.server.account.pending_rows import PendingRows
from muster.server.account.traffic import TransferCost
from muster.server.fleet.devices import ConnectedPack
from muster.server.fleet.fleet import Fleet
from muster.server.updates.admission import Admission

_MOST = 100
"""The most uncounted updates of one device that are entered in a round, so that one device cannot
fill the account."""


_EVENTS: Mapping[str, type[Late | Refused | Duplicate]] = {
    kind.name: kind for kind in (Late, Refused, Duplicate)
}


class UncountedUpdates:
    """Records refused, late and repeated updates."""

    def __init__(
        self, admission: Admission, pending: PendingRows, fleet: Fleet, clock: Clock, tell: Tell
    ) -> None:
        self._admission = admission
        self._pending = pending
        self._fleet = fleet
        self._clock = clock
        self._tell = tell
        self._of_device = Counter[str]()

    def forget(self) -> None:
        """Start the counts again from 0, for a new round."""
        self._of_device.clear()

    def record(
        self,
        pack: ConnectedPack | None,
        update: Update,
        receipt: Receipt,
        cost: TransferCost,
        base_version: int | None = None,
    ) -> Receipt:
        """Enter an update in the account of the device that sent it, and return its receipt.

        If a session sends an update under the name of another session's device, the event names the
        session's own first device, and there is no row. An update of a round that was never opened
        has no row either.

        Args:
            pack: the pack whose session sent it; None: the device's own, and it sends no more.
            base_version: the base version of its round; None: take it from the open round or the
                one before.

        Raises:
            RemoteProtocolError: the device has sent too many of these in this round.
        """
        outcome = "duplicate" if receipt.outcome is Outcome.ACCEPTED else receipt.outcome.value
        reason, (client, number, _) = receipt.reason, update.key
        own = pack is None or client in pack.devices
        if not own:
            assert pack is not None
            client = next(iter(pack.devices))
        if pack is not None:
            self._count(client)
        if own and 0 < number <= self._admission.newest_round:
            self._enter(update, outcome, reason, cost, base_version)
        self._tell(_EVENTS[outcome](number, client, reason))
        return receipt

    def _count(self, client: str) -> None:
        self._of_device[client] += 1
        if self._of_device[client] > _MOST:
            raise RemoteProtocolError(
                f"{client} sent {self._of_device[client]} updates that do not count since the "
                f"round began; expected at most {_MOST}. Look at their receipts, and wait "
                f"for the next call"
            )

    def _enter(
        self,
        update: Update,
        outcome: str,
        reason: Reason | None,
        cost: TransferCost,
        base_version: int | None,
    ) -> None:
        admission = self._admission
        member = admission.member_of(update.key)
        if base_version is None:
            round = admission.round_of(update.key)
            base_version = member.base_version if member else round.base_version if round else 0
        whole = cost.up >= update.length == admission.formats.of(update.key).length
        fate, model_bytes = (outcome, reason, self._clock.now()), 0
        if outcome != "duplicate":  # else the update that it repeats is charged with the model
            model_bytes = member.claim() if member else 0
        self._pending.contribution(update, base_version, *fate, cost, model_bytes, whole=whole)
