"""What devices say, judged and kept until the round closes: answers, updates, receipts.

The table in `rounds` decides; here bodies are staged, folded into the exact sum, and entered in the
books, whether they count or not.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from muster.common.clock import Clock
from muster.common.compression import Codec, Whole
from muster.common.errors import MusterError, RunFailed
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
from muster.server.accumulator import ExactSum, Term
from muster.server.aggregators import Contribution, State
from muster.server.books import Books
from muster.server.config import Server
from muster.server.fleet import Fleet, Pack
from muster.server.gathering import Gathering, Staged
from muster.server.rounds import Phase, Round
from muster.server.uploads import Form, Inline, Spill, Spills
from muster.wire import INLINE_BYTES

Tell = Callable[..., None]
"""Records an event in the journal and shows it to who watches: `tell("received", round=3)`."""


class Intake:
    """The updates of the open round, and the receipts of the one before.

    Attributes:
        gathering: what the open round has gathered; None between two.
        books: what the next commit enters.
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
        settings: Server,
        lockstep: bool,
        schema: Schema,
        codecs: Mapping[str, Codec],
        fleet: Fleet,
        clock: Clock,
        worker: ThreadPoolExecutor,
        spills: Spills,
        tell: Tell,
        closed: Callable[[], None],
        x_names: Mapping[str, Sequence[str]],
        scale: float = 1.0,
        shared: bool = False,
    ) -> None:
        self.round: Round | None = None
        self.sum = ExactSum(schema.parameters)
        self.progress_at = 0.0
        self._lockstep = lockstep
        # By group; a group that is not named sends its updates whole.
        groups = {device.group: Whole(kind="none") for device in fleet.devices.values()}
        self._forms = {
            group: Form(codec, schema.parameters, settings.guard.max_norm)
            for group, codec in {**groups, **codecs}.items()
        }
        self.update_bytes = {group: form.length for group, form in self._forms.items()}
        self._fleet = fleet
        self._clock = clock
        self._worker = worker
        self._spills = spills
        self._tell = tell
        self._closed = closed
        self.books = Books(schema, fleet, x_names, clock, scale)
        self._rule = settings.aggregator
        # In lockstep with a goal, or with links that make late, who counts is known only when all
        # have spoken.
        decided_later = lockstep and (
            settings.round_goal() is not None or (shared and settings.deadline_s is not None)
        )
        self._folds_on_arrival = self._rule.weights == "on-arrival" and not decided_later
        self._small = schema.body_bytes <= INLINE_BYTES
        self._past: Round | None = None
        self._state: State = {}
        self._forget()

    def _forget(self) -> None:
        self.gathering: Gathering | None = None
        self._folds: list[asyncio.Future[None]] = []
        self._unfolded: SimpleQueue[Staged] = SimpleQueue()
        self._uploads: dict[_Upload, Spill] = {}

    def open(self, round: Round, state: State) -> None:
        """Begin to take updates for a round; `state` is the aggregator's."""
        self.close()
        self.round, self._state = round, state
        devices = self._fleet.devices.values()
        absent = [] if self._lockstep else [d.client for d in devices if not d.present]
        self.gathering = Gathering(round, absent)
        self.sum.clear()

    def close(self) -> None:
        """Give the bodies of the round back; its receipts stay until the next one closes."""
        if self.gathering is not None:
            for staged in self.gathering.staged.values():
                staged.body.close()
        for spill in self._uploads.values():
            spill.close()
        self._forget()
        self._past, self.round = self.round or self._past, None

    # --- what devices say ------------------------------------------------------------------------

    def upload(self, update: Update, waited_s: float) -> Spill:
        """The body of an update so far, whose device has waited for its turn to send the rest; an
        unfinished one stays until its round closes."""
        spill = self._uploads.get(_upload(update))
        if spill is None:
            form = self._forms[self._fleet.devices[update.key.client].group]
            spill = self._spills.open(update, form, self._clock.now() - waited_s)
            self._uploads[_upload(update)] = spill
        spill.wait_s += waited_s
        return spill

    def answered(self, pack: Pack, answers: Sequence[tuple[Answer, Body]]) -> list[Receipt]:
        """Devices answered calls in one message, in which the bodies of small updates came too; the
        receipts of these."""
        declined: list[str] = []
        receipts = []
        for answer, body in answers:
            self._enter(pack, answer, declined)
            if answer.update is not None:
                receipts.append(self._received_inline(pack, answer.update, body))
        if declined:  # thousands in a message, and the ledger names them
            self._tell("declined", round=answers[0][0].key.round, reasons=Counter(declined))
        self._look()
        return receipts

    def _enter(self, pack: Pack, answer: Answer, declined: list[str]) -> None:
        """Enter what a device says to a call, if it was called; what it tells of itself in any
        case."""
        round, client = self.round, answer.key.client
        device = pack.devices.get(client)
        if device is None:
            return
        if answer.state is not None or answer.x:
            self.see(pack, Observation(client, answer.state, answer.x))
        if round is None or round.answer(answer) is not None:
            return
        assert self.gathering is not None
        self.gathering.answered_at[client] = self._clock.now()
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

    def see(self, pack: Pack, seen: Observation) -> None:
        """Keep the last that a device told of itself.

        Raises:
            RemoteProtocolError: X is not what the scenario says of the group.
        """
        device = pack.devices.get(seen.client)
        if device is not None:
            self.books.check(device, seen.x)
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

    def _received_inline(self, pack: Pack, update: Update, body: Body) -> Receipt:
        receipt = self._known(pack, update)
        if receipt is not None:
            return self._record(update, receipt)
        form = self._forms[pack.devices[update.key.client].group]
        return self._take(update, Inline(body, form))

    def too_late(self, update: Update) -> Receipt:
        """The receipt of an update whose round closed while it was under way."""
        round = self._round_of(update.key)
        return self._record(update, round.admit(update) if round else _not_open(update.key))

    def judge(self, pack: Pack, update: Update) -> Receipt | None:
        """The receipt of an update whose body need not be looked at, or None."""
        receipt = self._known(pack, update)
        return None if receipt is None else self._record(update, receipt)

    def receive(self, pack: Pack, update: Update, body: Spill) -> Receipt:
        """Judge a complete update; an accepted one is staged, and folded when the rule allows.

        The body is the intake's from here on.
        """
        self._uploads.pop(_upload(update), None)
        self.progress_at = self._clock.monotonic()
        send_s = body.wait_s + body.send_s
        receipt = self._known(pack, update)
        if receipt is not None:
            body.close()
            return self._record(update, receipt)
        self.books.transferred(update, body)
        receipt = self._take(update, body, send_s)
        self._look()
        return receipt

    def _take(self, update: Update, body: Inline | Spill, send_s: float = 0.0) -> Receipt:
        round = self._round_of(update.key)
        assert round is not None  # or it would be known to be late
        fault = body.fault(update)
        receipt = round.refuse(update, *fault) if fault else round.admit(update)
        if receipt.outcome is Outcome.ACCEPTED:
            self._stage(update, body, send_s)
        else:
            body.close()
            self._record(update, receipt)
        return receipt

    def _known(self, pack: Pack, update: Update) -> Receipt | None:
        if refusal := self._unfit(pack, update):
            return Receipt(update.key, Outcome.REFUSED, *refusal)
        round = self._round_of(update.key)
        if round is None:
            return _not_open(update.key)
        known = round.judge(update)
        closed = round.phase is not Phase.COLLECTING
        return round.admit(update) if known is None and closed else known

    def _unfit(self, pack: Pack, update: Update) -> tuple[Reason, str] | None:
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

    def _look(self) -> None:
        if self.round is not None and self.round.phase is not Phase.COLLECTING:
            self._closed()

    # --- folding ---------------------------------------------------------------------------------

    def _stage(self, update: Update, body: Inline | Spill, send_s: float) -> None:
        client = update.key.client
        assert self.gathering is not None
        self.gathering.answered_at.setdefault(client, self._clock.now())
        group = self._fleet.devices[client].group
        contribution = Contribution(client, group, update.examples, staleness=0)
        staged = Staged(update, contribution, body, send_s)
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

    def _fold_now(self, staged: Staged) -> None:
        """Without the worker, which costs more than a small vector; an error waits for `fold`."""
        try:
            self._fold_together([staged])
        except MusterError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            self._folds.append(failed)

    def _fold_beside(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(self._worker, self._fold_waiting)

    async def counted(self) -> list[Staged]:
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

    async def fold(self, counted: Sequence[Staged], weights: Sequence[float]) -> None:
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

    def _fold_together(self, together: Sequence[Staged]) -> None:
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

    def _record(self, update: Update, receipt: Receipt) -> Receipt:
        """Enter what does not count, or not again."""
        outcome = "duplicate" if receipt.outcome is Outcome.ACCEPTED else receipt.outcome.value
        reason = receipt.reason
        if update.key.client in self._fleet.devices:
            self._note(update, outcome, reason, self._clock.now())
        self._tell(
            outcome,
            round=update.key.round,
            client=update.key.client,
            reason=reason,
        )
        return receipt

    def _note(
        self,
        update: Update,
        outcome: str,
        reason: Reason | None,
        at: float,
        weight: float | None = None,
        send_s: float = 0.0,
    ) -> None:
        round = self._round_of(update.key)
        base_version = round.base_version if round else 0
        self.books.contribution(update, base_version, outcome, reason, at, weight, send_s)


_Upload = tuple[str, int, bytes]
"""Client, round and checksum: whatever attempt sends it, it is the same body."""


def _upload(update: Update) -> _Upload:
    return update.key.client, update.key.round, update.checksum


def _not_open(key: Key) -> Receipt:
    return Receipt(key, Outcome.LATE, Reason.ROUND_CLOSED)
