"""Presence of devices: the assembly of the fleet, devices that fall silent, and stalled rounds."""

import math
from collections.abc import Mapping

from muster.common.errors import RunFailed
from muster.common.events import Left, Tell, Waiting
from muster.common.shared_lines import SharedLine
from muster.server.account.ledger import Ledger
from muster.server.aggregation.versions import ModelVersions
from muster.server.coordination.scenario_time import ScenarioTime
from muster.server.coordination.shared_links import least_lines
from muster.server.fleet.devices import ConnectedPack
from muster.server.fleet.fleet import Fleet
from muster.server.fleet.patience import Patience
from muster.server.rounds.phases import RoundPhase
from muster.server.rounds.round import Round
from muster.server.runtime.signals import RunSignals
from muster.server.settings.server import ServerSettings
from muster.server.updates.receiver import UpdateReceiver

_SETTLE_S = 2.0
"""After a restart, on clocks on which devices go away: seconds without a new arrival after which
the fleet counts as assembled."""

_SILENCE_S = 5.0
"""Seconds without a word of any device after which a round is said to wait."""

_NAMED = 10
"""Most devices that are named if a round waits for them."""


class Presence:
    """Watches which devices are connected, and for how long all have been silent."""

    def __init__(
        self,
        settings: ServerSettings,
        lockstep: bool,
        fleet: Fleet,
        shared: Mapping[str, SharedLine],
        receiver: UpdateReceiver,
        versions: ModelVersions,
        time: ScenarioTime,
        signals: RunSignals,
        patience: Patience,
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._lockstep = lockstep
        self._fleet = fleet
        self._shared = shared
        self._receiver = receiver
        self._versions = versions
        self._time = time
        self._signals = signals
        self._patience = patience
        self._left_at = patience.monotonic()
        self._tell = tell

    # --- waiting for devices ---------------------------------------------------------------------

    async def assemble(self, ledger: Ledger) -> None:
        """Wait for the fleet before the first round, so that its start does not count as part of a
        round.

        Raises:
            RunFailed: no device came within `stall_s`; in lockstep, not every device came.
        """
        if not self._lockstep and ledger.has_begun():
            await self._assemble_again()
            return
        stall_s, fleet, patience = self._settings.stall_s, self._fleet, self._patience
        limit = patience.monotonic() + stall_s
        while fleet.present < fleet.expected and self._signals.stop_request is None:
            self._signals.clear()
            if await self._signals.wait_until(limit, patience):
                continue
            if fleet.present and not self._lockstep:
                break
            raise RunFailed(
                f"{fleet.present} of {fleet.expected} devices came within {stall_s:g} s; see the "
                f"logs of the others. server.stall_s sets the patience"
            )
        if not self._lockstep:
            self._begin(ledger)

    async def _assemble_again(self) -> None:
        """After a restart, wait until no device has come for a while, because some may be away."""
        while self._fleet.present < self._fleet.expected and self._signals.stop_request is None:
            self._signals.clear()
            limit = self._patience.monotonic() + _SETTLE_S
            if not await self._signals.wait_until(limit, self._patience):
                return

    def _begin(self, ledger: Ledger) -> None:
        """Begin scenario time at 0 and report it to the devices. All that could come have come."""
        self._time.begin(ledger)
        for pack in self._fleet.packs():
            pack.send(self._versions.committed, scenario_s=self._time.now_s())

    async def wait_for_any_device(self, began: float) -> None:
        """On clocks on which devices go away, wait for one that can be called, for as long as a
        round may last. If none comes, the round is recorded as empty.

        Args:
            began: monotonic seconds at which the round began.
        """
        deadline_s = self._settings.deadline_s
        if self._lockstep or deadline_s is None:
            return
        while not self._fleet.present and self._signals.stop_request is None:
            self._signals.clear()
            if not await self._signals.wait_until(began + deadline_s):
                return

    async def wait_for_step(self, step: int) -> None:
        """Wait until a step of device life begins, a device comes, or the run is to stop. While no
        device is here, steps change nothing.

        Raises:
            RunFailed: no device has been here for `stall_s`.
        """
        self._signals.clear()
        if self._fleet.present:
            await self._signals.wait_until(self._time.instant_of(step))
            return
        stall_s = self._settings.stall_s
        if not await self._signals.wait_until(self._left_at + stall_s, self._patience):
            raise RunFailed(
                f"no device has been here for {stall_s:g} s, and none has work to finish; see "
                f"their logs. If all may be away for longer, choose a larger server.stall_s, which "
                f"sets the patience, and resume the run"
            )

    # --- watching --------------------------------------------------------------------------------

    async def watch_for_absence(self) -> None:
        """Count a device as gone if it was silent for two heartbeats, even if it is connected. They
        may wait in the queues of its link and of a shared one, and in handovers."""
        heartbeat_s, at_once = self._settings.heartbeat_s, self._settings.transfers
        lines = least_lines(self._shared, self._fleet, at_once).values()
        late_s = max((line.late_s for line in lines), default=0.0)
        patience_s = 2 * heartbeat_s + 2 * late_s
        while True:
            now = self._patience.monotonic()
            for pack in self._fleet.packs():
                if pack.outbox is not None and pack.heard_at + patience_s < now:
                    self._fleet.leave(pack, pack.outbox)
                    self.left(pack, f"it was silent for {patience_s:g} s")
            await self._patience.sleep_until(now + heartbeat_s)

    async def watch_for_stalls(self) -> None:
        """In lockstep, watch that rounds go on. One watch serves the whole run, because a timer for
        each round would cost a tenth of the round's time.

        Raises:
            RunFailed: no device has done anything new for `stall_s` while a round collects.
        """
        patience, stall_s, told_at = self._patience, self._settings.stall_s, -math.inf
        while True:
            now, progress_at = patience.monotonic(), patience.progress_at
            limit, round = progress_at + stall_s, self._receiver.round
            if round is not None and round.phase is RoundPhase.COLLECTING:
                if now >= limit:
                    raise RunFailed(self._stalled(round))
                if now >= progress_at + _SILENCE_S and told_at < progress_at:
                    clients = _awaited(round)
                    self._tell(Waiting(round.number, clients[:_NAMED], len(clients)))
                    told_at = progress_at
            # Opening a round is progress, so none that opens from now on has stalled before.
            await patience.sleep_until(min(limit if now < limit else math.inf, now + _SILENCE_S))

    def _stalled(self, round: Round) -> str:
        silent = _awaited(round)
        shown = ", ".join(silent[:5]) + (" …" if len(silent) > 5 else "")
        return (
            f"round {round.number} stalled: no device answered for {self._settings.stall_s:g} s; "
            f"{len(silent)} of {len(round.cohort)} have not ({shown}). See their logs; "
            f"server.stall_s sets the patience"
        )

    def left(self, pack: ConnectedPack, why: str) -> None:
        """Record that the stream of a pack's devices ended."""
        self._left_at = self._patience.monotonic()
        for client in pack.devices:
            self._tell(Left(client, why))


def _awaited(round: Round) -> list[str]:
    """The devices that a round still waits for."""
    return [client for client, member in round.cohort.items() if not member.spoke]
