"""Receives what devices send in a round: answers to calls, and updates in messages or in chunks.

An update passes these steps in order: `Admission` judges its header, its body is checked
(`uploads`), the round (`rounds.round`) admits it, and `Folding` adds it to the sum. An update
that does not count goes to `UncountedUpdates`.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from muster.common.clock import Clock
from muster.common.errors import RemoteProtocolError
from muster.common.events import Received, Tell, Warned
from muster.common.exact_sum import ExactSum
from muster.common.exchange import (
    Answer,
    Body,
    Commit,
    Key,
    Observation,
    Outcome,
    Receipt,
    Update,
)
from muster.server.account.pending_rows import PendingRows
from muster.server.account.traffic import Transfer, TransferCost
from muster.server.account.transaction import PendingTransaction
from muster.server.aggregators import State
from muster.server.fleet.covariates import ReportedCovariates
from muster.server.fleet.devices import ConnectedPack
from muster.server.fleet.durations import WorkDurations
from muster.server.fleet.fleet import Fleet
from muster.server.fleet.patience import Patience
from muster.server.rounds.life import LIVE, FleetLife
from muster.server.rounds.phases import RoundPhase
from muster.server.rounds.round import Round
from muster.server.settings.process import ServerProcess
from muster.server.updates.admission import Admission
from muster.server.updates.answers import Answers
from muster.server.updates.contributions import ContributionFacts
from muster.server.updates.folding import Folding
from muster.server.updates.formats import UpdateFormats
from muster.server.updates.open_uploads import OpenUploads
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates
from muster.server.updates.uncounted import UncountedUpdates
from muster.server.updates.uploads import HeldBody, InlineBody, ReceivedBody, Upload, UploadFiles
from muster.wire import INLINE_BYTES

_OPEN = RoundPhase.SELECTING, RoundPhase.COLLECTING


class UpdateReceiver:
    """Receives the answers and updates of the open round; knows the receipts of the one before.

    Attributes:
        updates: the answers and updates of the open round so far; None between two rounds.
        pending: the rows that wait for the next commit.
        answers: enters what devices answer and report.
        formats: the formats of the updates.
        durations: bounds what devices state of the durations of their work.
        covariates: bounds what devices state of their covariates.

    Args:
        worker: the thread in which large vectors are folded, one at a time.
        files: where large updates are kept while they arrive.
        patience: is renewed when an answer or an update comes.
        closed: called when the open round no longer collects.
    """

    def __init__(
        self,
        config: ServerProcess,
        formats: UpdateFormats,
        fleet: Fleet,
        worker: ThreadPoolExecutor,
        files: UploadFiles,
        patience: Patience,
        clock: Clock,
        tell: Tell,
        closed: Callable[[], None],
        life: FleetLife = LIVE,
    ) -> None:
        settings, rule = config.server, config.server.aggregator
        self.updates: RoundUpdates | None = None
        self.formats = formats
        mask_ratio = formats.mask_ratio if formats.masked else None
        self.pending = PendingRows(
            formats.whole_bytes, fleet, config.x, clock, config.scale, mask_ratio, life
        )
        self._lockstep = lockstep = config.lockstep
        self._outlives_round = settings.mode.outlives_round()
        self._hold = frozenset(config.partial_sums)
        self._secure = settings.secure is not None
        self._facts = ContributionFacts(settings, config.local_work, fleet, formats.entries)
        self._fleet = fleet
        self._patience = patience
        self._clock = clock
        self._tell = tell
        self._closed = closed
        max_loss = settings.guard.max_loss or math.inf
        self.answers = Answers(self.pending, fleet, clock, tell, max_loss)
        recorded_s = life.modelled_s if life.recorded else None
        self.durations = WorkDurations(fleet.devices, formats.sizes, lockstep, recorded_s)
        self.covariates = ReportedCovariates(
            fleet.devices,
            config.z_bounds,
            config.x_bounds,
            {m.client: m.z for m in config.population if m.z is not None},
            lambda what: tell(Warned(self.newest_round, rule.kind, what)),
        )
        self._admission = Admission(formats, fleet, rule.needs(), max_loss)
        self._uncounted = UncountedUpdates(self._admission, self.pending, fleet, clock, tell)
        # In lockstep with a goal, with links that make devices late, or if updates may count in a
        # later round, the updates that count are known only when all devices have spoken.
        shared = any(line.delays for line in config.shared.values())
        decided_later = lockstep and (
            settings.mode.outlives_round()
            or settings.round_goal() is not None
            or (shared and settings.deadline_s is not None)
            or life.decides_last
        )
        self._folding = Folding(
            formats.entries,
            rule,
            # Kept updates are written together, when the round has closed.
            on_arrival=rule.folds_on_arrival() and not (decided_later or settings.keep_updates),
            small=formats.whole_bytes <= INLINE_BYTES,
            worker=worker,
            keeps_bodies=settings.mode.outlives_round(),
            clip=settings.clip,
        )
        self._uploads = OpenUploads(self._admission, self._uncounted, self.pending, files)

    # --- the round -------------------------------------------------------------------------------

    @property
    def round(self) -> Round | None:
        """The open round; None between two rounds."""
        return self._admission.round

    @property
    def newest_round(self) -> int:
        """The number of the newest round that was opened."""
        return self._admission.newest_round

    @newest_round.setter
    def newest_round(self, number: int) -> None:
        self._admission.newest_round = number

    @property
    def sum(self) -> ExactSum:
        """Σ w·Δ of the open round so far."""
        return self._folding.sum

    def open(self, round: Round, state: State) -> None:
        """Begin to take updates for a round; `state` is the aggregator's."""
        if self.updates is None or self.updates.round is not round:
            self.close()
            self.updates = RoundUpdates(round)
        self._admission.open(round)
        self._folding.open(state)
        devices = self._fleet.devices.values()
        self.updates.absent = [] if self._lockstep else [d.client for d in devices if not d.present]

    def resume(self, round: Round) -> None:
        """Take the updates of a round that has taken over the assignments that an earlier
        incarnation of the server has left open."""
        self.updates = RoundUpdates(round)
        self._admission.take_over(round)

    def close(self, next: RoundUpdates | None = None) -> list[Receipt]:
        """Release the bodies of the round; its receipts stay until the next one closes.

        Args:
            next: the updates of the next round, if it takes over open assignments. Their bodies and
                their uploads stay.

        Returns:
            The receipts of updates that are still being sent, so that their devices can stop.
        """
        carried = {} if next is None else next.round.cohort
        if self.updates is not None:
            for client, update in self.updates.accepted.items():
                if client not in carried:
                    update.body.close()
        stop = self._uploads.cut_off(carried)
        self.updates = next
        self._folding.forget()
        self._uncounted.forget()
        self._admission.close()
        if next is not None:
            self._admission.take_over(next.round)
        return stop

    def close_and_stop_senders(self, committed: Commit, next: RoundUpdates | None = None) -> None:
        """Close the round, and tell devices that still send an update for it to stop.

        Args:
            next: see `close`.
        """
        for receipt in self.close(next):
            pack = self._fleet.devices[receipt.key.client].pack
            if pack is not None and pack.outbox is not None:
                pack.receipts.append(receipt)
                pack.send(committed)

    async def counted(self) -> list[PendingUpdate]:
        """See `Folding.counted`; for the open round."""
        assert self.updates is not None
        counted = await self._folding.counted(self.updates)
        if self._outlives_round:  # their staleness is known only now
            for update in counted:
                update.contribution = self._facts.aged(
                    update.update, update.contribution, self.updates.round
                )
        return counted

    async def fold(self, counted: Sequence[PendingUpdate], weights: Sequence[float]) -> None:
        """See `Folding.fold`."""
        await self._folding.fold(counted, weights)

    def _report_if_closed(self) -> None:
        round = self._admission.round
        if round is not None and round.phase not in _OPEN:
            self._closed()

    # --- answers ---------------------------------------------------------------------------------

    def answered(self, pack: ConnectedPack, answers: Sequence[tuple[Answer, Body]]) -> bool:
        """Enter the answers of one message and the small updates inside them, whose receipts go
        with the pack's next message. Return whether any of these updates is refused.

        Raises:
            RemoteProtocolError: a device has sent too many updates that do not count.
        """
        receipts, refused = [], False
        try:
            for stated, body in answers:
                answer = self.durations.of_answer(stated)
                if answer.x or answer.foreseen:
                    answer = self.covariates.of_answer(answer)
                if self.answers.enter(pack, answer, self.updates):
                    self._patience.progress_at = pack.heard_at
                if answer.update is not None:
                    receipt = self._received_inline(pack, answer.update, body)
                    receipts.append(receipt)
                    refused = refused or receipt.outcome is Outcome.REFUSED
        finally:
            if self.answers.declined:
                self.answers.tell_declined(self.round)
            self._report_if_closed()
        pack.receipts += receipts
        return refused

    def see(self, pack: ConnectedPack, seen: Observation) -> None:
        """See `Answers.see`."""
        self.answers.see(pack, self.covariates.of_observation(seen))

    def decline_known_away(self, clients: Sequence[str]) -> None:
        """See `Answers.decline_known_away`; for the open round."""
        assert self.round is not None
        self.answers.decline_known_away(clients, self.round)
        self._report_if_closed()

    # --- updates ---------------------------------------------------------------------------------

    def newest_call(self, pack: ConnectedPack) -> Key:
        """See `Admission.newest_call`."""
        return self._admission.newest_call(pack)

    def judge(self, pack: ConnectedPack, update: Update) -> Receipt | None:
        """Return the receipt of an update whose body need not be read; None: the device must send
        the body.

        Raises:
            RemoteProtocolError: devices hold their updates back, because sums are secure.
        """
        self._require_form(pack, update)
        receipt = self._admission.known_receipt(pack, update)
        if receipt is None:
            return None
        cost = self._uploads.cost_of_judged(pack, update)
        try:
            return self._uncounted.record(pack, update, receipt, cost)
        finally:
            self._report_if_closed()

    def _require_form(self, pack: ConnectedPack, update: Update) -> None:
        """Check that a device holds its update back only if its group does, and always if sums are
        secure. Otherwise it could count beside a secure sum that has too few updates to be opened.

        Raises:
            RemoteProtocolError: it does not.
        """
        client, group, holds = update.key.client, pack.group, pack.group in self._hold
        if update.held is not None and not holds:
            raise RemoteProtocolError(
                f"{client} holds its update back, but partial_sums is not set for the group "
                f"{group}; expected the body of the update"
            )
        if update.held is None and self._secure:
            raise RemoteProtocolError(
                f"{client} sends the body of its update; expected that it holds it back, because "
                f"server.secure is set"
            )

    def _received_inline(self, pack: ConnectedPack, update: Update, body: Body) -> Receipt:
        self._require_form(pack, update)
        length = len(body)
        self.pending.inline_up += length
        receipt = self._admission.known_receipt(pack, update)
        if receipt is not None:
            return self._uncounted.record(pack, update, receipt, TransferCost(length))
        format = self.formats.of(update.key)
        if update.held is not None:
            return self._take(pack, update, HeldBody(update.held, format), TransferCost())
        cost = format.inline_cost if length == format.length else TransferCost(length)
        return self._take(pack, update, InlineBody(body, format), cost)

    def receive(self, pack: ConnectedPack, update: Update, body: Upload) -> Receipt:
        """Judge a complete update and return its receipt. An accepted update is kept; it is folded
        now if updates are folded on arrival.

        From here on the receiver is responsible for closing the body.
        """
        self._uploads.complete(update.key.client, body)
        self._patience.renew()
        cost = TransferCost(body.arrived, body.model_bytes, body.send_s)
        try:
            receipt = self._admission.known_receipt(pack, update)
            if receipt is None:
                return self._take(pack, update, body, cost)
            body.close()
            return self._uncounted.record(pack, update, receipt, cost)
        finally:
            self._report_if_closed()

    def _take(
        self, pack: ConnectedPack, update: Update, body: ReceivedBody, cost: TransferCost
    ) -> Receipt:
        round = self._admission.round_of(update.key)
        assert round is not None  # otherwise the update would have got the receipt LATE
        pending = None
        if (fault := body.fault(update)) is None:
            contribution = self._facts.of(update, body, round.staleness_of(update.key.client))
            held = update.held is not None
            pending = PendingUpdate(update, contribution, body, cost, held=held)
            if (fault := self._folding.fault(pending)) is not None:
                assert self.updates is not None
                self.updates.beyond_range = f"{update.key.client}: {fault[1]}"
        receipt = round.refuse(update, *fault) if fault else round.admit(update)
        if pending is not None and receipt.outcome is Outcome.ACCEPTED:
            self._accept(pending)
        else:
            body.close()
            self._uncounted.record(pack, update, receipt, cost)
        return receipt

    def _accept(self, pending: PendingUpdate) -> None:
        (client, number, attempt), updates = pending.update.key, self.updates
        assert updates is not None
        if client not in updates.answered_at:
            updates.answered_at[client] = self._clock.now()
        updates.accepted[client] = pending
        arrived = 0 if pending.held else pending.update.length
        self._tell(Received(number, client, attempt, arrived))
        if updates.round.has_arrived(client):
            self._folding.arrived(pending)

    # --- updates in chunks -----------------------------------------------------------------------

    def upload(self, pack: ConnectedPack, update: Update, asked_at: float) -> Upload:
        """See `OpenUploads.begin`."""
        return self._uploads.begin(pack, update, asked_at)

    def sending(self, upload: Upload) -> AbstractContextManager[Transfer]:
        """See `OpenUploads.sending`."""
        return self._uploads.sending(upload)

    def drop_open(self) -> None:
        """Enter the assignments that are open although the run is complete."""
        if self.updates is not None:
            self.updates.drop_open(self.pending, self._clock.now())

    async def last_rows(self, limit: float) -> PendingTransaction:
        """The rows that the ledger still needs when no other round will be committed.

        Args:
            limit: monotonic seconds until which uploads that are under way may arrive.
        """
        await self._uploads.end(limit)
        past = self._admission.past
        rows = self.pending.take(past.number if past else 0)
        # These are of a round that was not committed. If the run is resumed, it makes them again.
        rows.estimates.clear()
        rows.valuations.clear()
        return rows
