"""What devices say, judged and kept until the round closes: answers, updates, receipts.

The table in `rounds` decides; here bodies are staged, folded into the exact sum, and entered in the
books, whether they count or not.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

from muster.common.clock import Clock
from muster.common.compression import Codec, Whole
from muster.common.errors import MusterError, RemoteProtocolError, RunFailed
from muster.common.exchange import (
    Answer,
    Body,
    Decision,
    Key,
    Observation,
    Outcome,
    Reason,
    Receipt,
    Update,
)
from muster.common.tensors import Schema
from muster.server.account.ledger import Notes
from muster.server.account.pending_rows import PendingRows
from muster.server.account.traffic import Transfer
from muster.server.aggregators import Contribution, State
from muster.server.config import ServerSettings
from muster.server.fleet import ConnectedPack, Fleet
from muster.server.rounds.lifecycle import CohortMember, Round, RoundPhase
from muster.server.updates.exact_sum import ExactSum, Term
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates
from muster.server.updates.uploads import (
    InlineBody,
    TransferCost,
    UpdateFormat,
    Upload,
    UploadFiles,
)
from muster.wire import INLINE_BYTES
from muster.wire.messages import FromDevice

Tell = Callable[..., None]
"""Records an event in the journal and shows it to who watches: `tell("received", round=3)`."""


class UpdateReceiver:
    """The updates of the open round, and the receipts of the one before.

    Attributes:
        gathering: what the open round has gathered; None between two.
        books: what the next commit enters.
        newest_round: the newest round that was opened.
        progress_at: monotonic seconds of the last answer or piece of a model or an update.
        update_bytes: length of an update's body by group.

    Args:
        codecs: how the updates of each group travel.
        worker: the thread in which large vectors are folded, one at a time.
        spills: where large updates are kept.
        closed: called when the open round no longer collects.
        x_names: names of the covariates X by group.
        scale: scenario seconds per second, on clocks that run.
        shared: whether links that devices share can make them late.
    """

    def __init__(
        self,
        settings: ServerSettings,
        lockstep: bool,
        schema: Schema,
        codecs: Mapping[str, Codec],
        fleet: Fleet,
        clock: Clock,
        worker: ThreadPoolExecutor,
        spills: UploadFiles,
        tell: Tell,
        closed: Callable[[], None],
        x_names: Mapping[str, Sequence[str]],
        scale: float = 1.0,
        shared: bool = False,
    ) -> None:
        self.round: Round | None = None
        self.sum = ExactSum(schema.parameters)
        self.newest_round = 0
        self.progress_at = 0.0
        self._lockstep = lockstep
        # By group; a group that is not named sends its updates whole.
        groups = {device.group: Whole(kind="none") for device in fleet.devices.values()}
        self._forms = {
            group: UpdateFormat(codec, schema.parameters, settings.guard.max_norm)
            for group, codec in {**groups, **codecs}.items()
        }
        self.update_bytes = {group: form.length for group, form in self._forms.items()}
        self._fleet = fleet
        self._clock = clock
        self._worker = worker
        self._spills = spills
        self._tell = tell
        self._closed = closed
        self.books = PendingRows(schema, fleet, x_names, clock, scale)
        self._rule = settings.aggregator
        # In lockstep with a goal, or with links that make late, who counts is known only when all
        # have spoken.
        decided_later = lockstep and (
            settings.round_goal() is not None or (shared and settings.deadline_s is not None)
        )
        self._folds_on_arrival = self._rule.weights == "on-arrival" and not decided_later
        self._small = schema.body_bytes <= INLINE_BYTES
        self._past: Round | None = None
        self._cut_off: dict[_Upload, Upload] = {}
        self._state: State = {}
        self._forget()

    def _forget(self) -> None:
        self.gathering: RoundUpdates | None = None
        self._folds: list[asyncio.Future[None]] = []
        self._unfolded: SimpleQueue[PendingUpdate] = SimpleQueue()
        self._uploads: dict[str, Upload] = {}  # by client
        self._uncounted = Counter[str]()

    def open(self, round: Round, state: State) -> None:
        """Begin to take updates for a round; `state` is the aggregator's."""
        self.close()
        self.round, self._state, self.newest_round = round, state, round.number
        devices = self._fleet.devices.values()
        absent = [] if self._lockstep else [d.client for d in devices if not d.present]
        self.gathering = RoundUpdates(round, absent)
        self.sum.clear()

    def close(self) -> list[Receipt]:
        """Give the bodies of the round back; its receipts stay until the next one closes.

        Returns:
            The receipts of updates that are still being sent: their devices are to stop.
        """
        if self.gathering is not None:
            for staged in self.gathering.staged.values():
                staged.body.close()
        stop = self._cut_off_uploads()
        self._forget()
        self._past, self.round = self.round or self._past, None
        return stop

    def _cut_off_uploads(self) -> list[Receipt]:
        """Decide on the updates that have not come whole."""
        stop: list[Receipt] = []
        if not (self._uploads or self._cut_off):
            return stop
        moving = self.books.traffic.moving
        kept = {u: spill for u, spill in self._cut_off.items() if moving(spill.transfers)}
        for spill in self._uploads.values():
            assert self.round is not None  # uploads are those of the open round
            kept[_upload(spill.update)], spill.verdict = spill, self.round.receive(spill.update)
            spill.close()
            if moving(spill.transfers):
                stop.append(spill.verdict)
        self._cut_off = kept
        return stop

    # --- what devices say ------------------------------------------------------------------------

    def check(self, pack: ConnectedPack, said: FromDevice) -> None:
        """Check a message of a session before any of it is entered.

        Raises:
            RemoteProtocolError: X of a device is not what the scenario says of its group.
        """
        for answer, _ in said.answers:
            if answer.x or answer.state is not None:
                self._check_x(pack, answer.key.client, answer.x)
        for seen in said.seen:
            self._check_x(pack, seen.client, seen.x)

    def _check_x(self, pack: ConnectedPack, client: str, x: Sequence[float]) -> None:
        if (device := pack.devices.get(client)) is not None:
            self.books.check(device, x)

    def upload(self, pack: ConnectedPack, update: Update, asked_at: float) -> Upload:
        """The body of an update so far, of which the device is to send the rest; an unfinished one
        stays until its round closes, or the device sends another body.

        Args:
            asked_at: UNIX seconds when the device began to wait for its turn.
        """
        client, model_bytes = update.key.client, 0
        spill = self._uploads.get(client)
        if spill is not None and _upload(spill.update) != _upload(update):
            spill.verdict = Receipt(spill.update.key, Outcome.RESUME)
            spill.close()
            model_bytes, spill = spill.model_bytes, None
        if spill is None:
            assert self.round is not None  # or the update would be known to be late
            form = self._forms[self._fleet.devices[client].group]
            spill = self._spills.open(update, form, self.round.base_version)
            spill.model_bytes = model_bytes
            self._uploads[client] = spill
        spill.ask(update, asked_at)
        spill.model_bytes += self._fetched(pack, update)
        return spill

    @contextmanager
    def sending(self, spill: Upload) -> Iterator[Transfer]:
        """The transfer of a part of an update, whose turn has come; it ends with the context."""
        assert spill.asked_at is not None
        asked_at, spill.asked_at = spill.asked_at, None
        spill.senders += 1
        try:
            with self.books.traffic.upload(spill.update.key, asked_at) as transfer:
                spill.transfers.append(transfer)
                yield transfer
        finally:
            if spill.verdict is not None:
                self._enter_cut_off(spill)

    def newest_call(self, pack: ConnectedPack) -> Key:
        """The newest call of a device of a pack that has not spoken, or else of any."""
        for round in (self.round, self._past):
            cohort = round.cohort if round is not None else {}
            called = [client for client in pack.devices if client in cohort]
            if round is not None and called:
                client = next((each for each in called if not cohort[each].spoke), called[0])
                return Key(client, round.number, cohort[client].attempt)
        return Key(next(iter(pack.devices)), 0, 0)

    def answered(
        self, pack: ConnectedPack, answers: Sequence[tuple[Answer, Body]]
    ) -> list[Receipt]:
        """Devices answered calls in one message, in which the bodies of small updates came too; the
        receipts of these.

        Raises:
            RemoteProtocolError: a device sends updates that do not count, again and again.
        """
        declined: list[str] = []
        receipts = []
        try:
            for answer, body in answers:
                self._enter(pack, answer, declined)
                if answer.update is not None:
                    receipts.append(self._received_inline(pack, answer.update, body))
        finally:
            if declined:  # thousands in a message, and the ledger names them
                assert self.round is not None
                self._tell("declined", round=self.round.number, reasons=Counter(declined))
            self._look()
        return receipts

    def _enter(self, pack: ConnectedPack, answer: Answer, declined: list[str]) -> None:
        """Enter what a device says to a call, if it was called; what it tells of itself in any
        case."""
        round, client = self.round, answer.key.client
        device = pack.devices.get(client)
        if device is None:
            return
        if answer.state is not None or answer.x:
            self.see(pack, Observation(client, answer.state, answer.x))
        if round is None:
            return
        again, first = round.has_answer(answer), not round.has_answered(client)
        if round.answer(answer) is not None or again:
            return
        assert self.gathering is not None
        self.gathering.answered_at[client] = self._clock.now()
        # A device that comes back and accepts again has brought the round no further.
        if first or answer.decision is not Decision.ACCEPT:
            self.progress_at = pack.heard_at
        if answer.decision is Decision.DECLINE:
            if self._lockstep and answer.reason is Reason.OFFLINE:
                device.away_until = round.number + answer.away_rounds
            declined.append(answer.reason.value if answer.reason else "")
        elif answer.update is None:  # otherwise what becomes of the update says it
            self._tell(
                "answered",
                round=round.number,
                client=client,
                decision=answer.decision,
                reason=answer.reason,
            )

    def see(self, pack: ConnectedPack, seen: Observation) -> None:
        """Keep the last that a device told of itself."""
        device = pack.devices.get(seen.client)
        if device is not None:
            device.see(seen, self._clock.monotonic())

    def foretold(self, clients: Sequence[str]) -> None:
        """Enter for devices what they have said already: that in this round they are offline."""
        round = self.round
        assert round is not None
        for client in clients:
            round.answer(Answer(round.call(client), Decision.DECLINE, reason=Reason.OFFLINE))
        if clients:
            self._tell("declined", round=round.number, reasons={Reason.OFFLINE.value: len(clients)})
            self._look()

    def _received_inline(self, pack: ConnectedPack, update: Update, body: Body) -> Receipt:
        length = len(body)
        self.books.inline_up += length
        receipt = self._known(pack, update)
        if receipt is not None:
            return self._record(pack, update, receipt, TransferCost(length))
        form = self._forms[pack.devices[update.key.client].group]
        cost = form.inline_cost if length == form.length else TransferCost(length)
        return self._take(pack, update, InlineBody(body, form), cost)

    def judge(self, pack: ConnectedPack, update: Update) -> Receipt | None:
        """The receipt of an update whose body need not be looked at, or None."""
        receipt = self._known(pack, update)
        if receipt is None:
            return None
        cost = TransferCost(down=self._fetched(pack, update))
        # What came of it before its round was closed, if it broke off then.
        if update.key.client in pack.devices:
            broken = self._cut_off.pop(_upload(update), None)
            if broken is not None:
                cost = TransferCost(broken.arrived, cost.down + broken.model_bytes, broken.send_s)
        return self._record(pack, update, receipt, cost)

    def _enter_cut_off(self, spill: Upload) -> None:
        """Enter an update whose round was closed while it was being sent, unless that was done."""
        if self._cut_off.pop(_upload(spill.update), None) is not None:
            assert spill.verdict is not None
            cost = TransferCost(spill.arrived, spill.model_bytes, spill.send_s)
            self._record(None, spill.update, spill.verdict, cost, spill.base_version)

    async def last_notes(self, limit: float) -> Notes:
        """What the ledger is still to be told when no other round will be committed.

        Args:
            limit: monotonic seconds until which uploads that are under way may arrive.
        """
        traffic = self.books.traffic
        sending = [spill for spill in self._cut_off.values() if traffic.moving(spill.transfers)]
        await traffic.end(limit)
        for spill in sending:
            self._enter_cut_off(spill)
        return self.books.take(self._past.number if self._past else 0)

    def _fetched(self, pack: ConnectedPack, update: Update) -> int:
        """Bytes of the model that a device fetched for an update; each is returned once."""
        if update.key.client not in pack.devices:
            return 0
        key = update.key if self._member(update.key) else None
        return self.books.traffic.fetched(pack, update, key)

    def receive(self, pack: ConnectedPack, update: Update, body: Upload) -> Receipt:
        """Judge a complete update; an accepted one is staged, and folded when the rule allows.

        The body is the intake's from here on.
        """
        if self._uploads.get(update.key.client) is body:
            del self._uploads[update.key.client]
        self.progress_at = self._clock.monotonic()
        cost = TransferCost(body.arrived, body.model_bytes, body.send_s)
        receipt = self._known(pack, update)
        if receipt is not None:
            body.close()
            return self._record(pack, update, receipt, cost)
        try:
            return self._take(pack, update, body, cost)
        finally:
            self._look()

    def _take(
        self, pack: ConnectedPack, update: Update, body: InlineBody | Upload, cost: TransferCost
    ) -> Receipt:
        round = self._round_of(update.key)
        assert round is not None  # or it would be known to be late
        fault = body.fault(update)
        receipt = round.refuse(update, *fault) if fault else round.admit(update)
        if receipt.outcome is Outcome.ACCEPTED:
            self._stage(update, body, cost)
        else:
            body.close()
            self._record(pack, update, receipt, cost)
        return receipt

    def _known(self, pack: ConnectedPack, update: Update) -> Receipt | None:
        if refusal := self._unfit(pack, update):
            return Receipt(update.key, Outcome.REFUSED, *refusal)
        round = self._round_of(update.key)
        if round is None:
            return _not_open(update.key)
        known = round.judge(update)
        closed = round.phase is not RoundPhase.COLLECTING
        return round.admit(update) if known is None and closed else known

    def _unfit(self, pack: ConnectedPack, update: Update) -> tuple[Reason, str] | None:
        device = pack.devices.get(update.key.client)
        if device is None:
            first, *others = pack.devices
            whose = f"{first} and {len(others)} more" if others else first
            return Reason.UNKNOWN_CLIENT, f"this session is of {whose}"
        form = self._forms[device.group]
        if update.length != form.length:
            expected = f"{form.length} bytes: {form.parameters} parameters, {form.codec.kind}"
            return Reason.LENGTH, f"{update.length} bytes; the schema asks for {expected}"
        if not 0 < update.examples <= device.examples:
            return Reason.EXAMPLES, f"{update.examples} examples; it holds {device.examples}"
        return None

    def _round_of(self, key: Key) -> Round | None:
        past = self._past
        return past if past is not None and key.round == past.number else self.round

    def _member(self, key: Key) -> CohortMember | None:
        """The device as a member of the cohort of its update's round, if the server knows it."""
        round = self._round_of(key)
        return round.cohort.get(key.client) if round and round.number == key.round else None

    def _look(self) -> None:
        if self.round is not None and self.round.phase is not RoundPhase.COLLECTING:
            self._closed()

    # --- folding ---------------------------------------------------------------------------------

    def _stage(self, update: Update, body: InlineBody | Upload, cost: TransferCost) -> None:
        client = update.key.client
        assert self.gathering is not None
        self.gathering.answered_at.setdefault(client, self._clock.now())
        group = self._fleet.devices[client].group
        contribution = Contribution(client, group, update.examples, staleness=0)
        staged = PendingUpdate(update, contribution, body, cost)
        self.gathering.staged[client] = staged
        self._tell(
            "received",
            round=update.key.round,
            client=client,
            attempt=update.key.attempt,
            bytes=update.length,
        )
        if not self._folds_on_arrival:
            return
        staged.weight = self._rule.weight(contribution, self._state)
        if self._small:
            self._fold_now(staged)
        else:
            self._unfolded.put(staged)
            self._folds.append(self._fold_beside())

    def _fold_now(self, staged: PendingUpdate) -> None:
        """Without the worker, which costs more than a small vector; an error waits for `fold`."""
        try:
            self._fold_together([staged])
        except MusterError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            self._folds.append(failed)

    def _fold_beside(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(self._worker, self._fold_waiting)

    async def counted(self) -> list[PendingUpdate]:
        """What counts; whatever was to be folded on arrival is.

        Raises:
            Diverged: the sum left its range.
            RunFailed: the aggregator gave an impossible weight.
        """
        assert self.gathering is not None
        if self._folds:
            await asyncio.gather(*self._folds)
        staged = self.gathering.staged
        return [staged[client] for client in self.gathering.round.counted()]

    async def fold(self, counted: Sequence[PendingUpdate], weights: Sequence[float]) -> None:
        """Fold what counts with its weights, where that did not happen on arrival.

        Raises:
            Diverged, RunFailed: as `counted`.
        """
        if not counted or self._folds_on_arrival:
            return
        for staged, weight in zip(counted, weights, strict=True):
            staged.weight = weight
            self._unfolded.put(staged)
        await self._fold_beside()

    def _fold_waiting(self) -> None:
        """Fold all that wait: together they cost less, and the next call may find none left."""
        together = []
        while not self._unfolded.empty():
            together.append(self._unfolded.get_nowait())
        if together:
            self._fold_together(together)

    def _fold_together(self, together: Sequence[PendingUpdate]) -> None:
        terms = []
        for staged in together:
            weight, body = staged.weight, staged.body
            if weight is None or not 0 <= weight < math.inf:
                client = staged.contribution.client
                raise RunFailed(
                    f"the aggregator {self._rule.kind!r} gave {client} the weight {weight}; "
                    f"expected a finite number >= 0"
                )
            terms.append(Term(body.read, weight, body.largest))
        self.sum.add_terms(terms)
        for staged in together:  # a cohort's bodies would be many times the model
            staged.body.close()

    # --- the books -------------------------------------------------------------------------------

    def _record(
        self,
        pack: ConnectedPack | None,
        update: Update,
        receipt: Receipt,
        cost: TransferCost,
        base_version: int | None = None,
    ) -> Receipt:
        """Enter what does not count, or not again, in the account of the device that sent it.

        What a session sends under the name of a device of another session is told of its own first
        device. That has no row, and neither has an update of a round that was never opened.

        Args:
            pack: whose session sent it; None: the device's own, of which nothing more is asked.
            base_version: of its round; None: of the open round or the one before.

        Raises:
            RemoteProtocolError: the account of the device has enough of these in this round.
        """
        outcome = "duplicate" if receipt.outcome is Outcome.ACCEPTED else receipt.outcome.value
        reason, (client, number, _) = receipt.reason, update.key
        own = pack is None or client in pack.devices
        if not own:
            assert pack is not None
            client = next(iter(pack.devices))
        if pack is not None:
            self._count_uncounted(client)
        if own and 0 < number <= self.newest_round:
            self._enter_uncounted(update, outcome, reason, cost, base_version)
        self._tell(outcome, round=number, client=client, reason=reason)
        return receipt

    def _count_uncounted(self, client: str) -> None:
        """Count an update of a device that does not count in the round.

        Raises:
            RemoteProtocolError: the account of the device has enough of these.
        """
        self._uncounted[client] += 1
        if self._uncounted[client] > _UNCOUNTED:
            raise RemoteProtocolError(
                f"{client} sent {self._uncounted[client]} updates that do not count since the "
                f"round began; expected at most {_UNCOUNTED}. Look at their receipts, and wait "
                f"for the next call"
            )

    def _enter_uncounted(
        self,
        update: Update,
        outcome: str,
        reason: Reason | None,
        cost: TransferCost,
        base_version: int | None,
    ) -> None:
        if base_version is None:
            round = self._round_of(update.key)
            base_version = round.base_version if round else 0
        group = self._fleet.devices[update.key.client].group
        whole = cost.up >= update.length == self.update_bytes[group]
        fate, model_bytes = (outcome, reason, self._clock.now()), 0
        if outcome != "duplicate":  # the update that it repeats is charged with the model
            member = self._member(update.key)
            model_bytes = member.claim() if member else 0
        self.books.contribution(update, base_version, *fate, cost, model_bytes, whole=whole)


_UNCOUNTED = 100
"""Updates of a device that do not count and are entered all the same, in a round: the account
cannot be filled by one device."""

_Upload = tuple[str, int, bytes]
"""Client, round and checksum: whatever attempt sends it, it is the same body."""


def _upload(update: Update) -> _Upload:
    return update.key.client, update.key.round, update.checksum


def _not_open(key: Key) -> Receipt:
    return Receipt(key, Outcome.LATE, Reason.ROUND_CLOSED)
