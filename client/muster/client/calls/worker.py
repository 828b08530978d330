"""The worker of a pack: handles the calls of its devices (decide, train, deliver)."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from muster.client.calls.call_batch import CallBatch
from muster.client.calls.partial_sums import HeldUpdates
from muster.client.calls.training_ahead import TrainingAhead
from muster.client.calls.training_runner import TrainingRunner
from muster.client.calls.willingness import Willingness
from muster.client.connection.slots import Slots
from muster.client.device.learner import Learner
from muster.client.device.memory import StoredUpdate
from muster.client.device.policy import AlwaysAccept, Choice, DevicePolicy
from muster.client.device.session import SessionEvent
from muster.client.life.clock import LifeClock
from muster.client.life.settings import ClockSettings as ClockSettings
from muster.client.training.trainer import TrainingError
from muster.common.clock import Clock
from muster.common.compression import Codec
from muster.common.errors import RemoteProtocolError
from muster.common.exchange import (
    SILENT,
    Answer,
    Body,
    Call,
    Decision,
    SumRequest,
    Update,
)
from muster.common.secure.grid import SumFormat
from muster.tasks.task import OpenTask
from muster.wire import CHUNK_BYTES, INLINE_BYTES

if TYPE_CHECKING:
    from muster.client.calls.secure_sums import SecureSteps

log = logging.getLogger("muster.client")

_ENVELOPE_BYTES = 200
"""Bytes of an answer without the body of its update; roughly an upper bound."""


class Worker:
    """Handles the calls of a pack, one message after the other.

    Attributes:
        quick: whether the last calls were handled so fast that the task that reads the stream can
            handle the next ones itself.

    Args:
        module: the pack's scratch module.
        held_codec: the devices hold their updates back, compressed with this codec, and the pack
            sends sums of them; None: it sends every update.
        secure: how they send their updates for secure sums; None: sums are not secure.
    """

    def __init__(
        self,
        devices: Mapping[str, Learner],
        policy: DevicePolicy | AlwaysAccept,
        settings: ClockSettings,
        life_clock: LifeClock,
        slots: Slots | None,
        clock: Clock,
        task: OpenTask,
        module: nn.Module,
        held_codec: Codec | None = None,
        secure: SumFormat | None = None,
    ) -> None:
        self.quick = False
        self._devices = devices
        self._policy = policy
        self._settings = settings
        self._lockstep = settings.lockstep
        self._life_clock = life_clock
        self._slots = slots
        self._clock = clock
        self._runner = TrainingRunner(settings, slots, clock)
        self._held: HeldUpdates | None = None
        if held_codec is not None:
            self._held = HeldUpdates(devices, held_codec, self._runner, secret=secure is not None)
        self._sum_format = secure
        self._secure: SecureSteps | None = None
        self._ahead = TrainingAhead(task, module, devices, self._runner, clock)
        self._willingness: Willingness | None = None
        if any(device.rational for device in devices.values()):
            self._willingness = Willingness(devices, policy, self._runner, self._lockstep, clock)

    async def handle_calls(self, batch: CallBatch) -> None:
        """Answer calls, with the stored updates for them or with newly trained ones, or send the
        sum of these updates."""
        began = self._clock.monotonic()
        if batch.sum_request is not None:
            await self._add_up(batch, batch.sum_request)
        elif batch.work.inline or self._held is not None:
            await self._handle_inline(batch)
        else:
            await self._handle_in_bulk(batch)
        # Outside lockstep a slow device sleeps as long as its modelled training takes, and the
        # stream must be read meanwhile.
        took_s = self._clock.monotonic() - began
        self.quick = self._lockstep and batch.work.inline and took_s < self._runner.quick_s

    async def _handle_inline(self, batch: CallBatch) -> None:
        """Send answers that contain the updates, as many in one message as fit into it. If the
        devices hold their updates back, only what the server must know of them is sent."""
        together: list[tuple[Answer, Body]] = []
        again: list[tuple[Answer, Body]] = []
        size = 0
        choices: Sequence[Choice] = self._choose(batch)
        if self._willingness is not None:
            choices = await self._willingness.judge(batch, choices)
        self._ahead.begin(batch, choices)
        for number, (call, choice) in enumerate(zip(batch.calls, choices, strict=True), start=1):
            if (said := await self._answer_with_update(call, choice, batch)) is not None:
                if self._devices[call.key.client].faulty:
                    for damaged in self._damaged(call, choice, said[1]) if said[0].update else ():
                        await batch.attendance.answer([(said[0], damaged)])
                    again += self._sent_again(call, choice, said[0], batch)
                together.append(said)
                report = said[0].update.report if said[0].update else b""
                size += len(said[1]) + len(report) + _ENVELOPE_BYTES
            full = together and size + size // len(together) > CHUNK_BYTES
            full = full or not batch.work.inline  # training takes long, so nobody should wait
            if together and (full or number == len(batch.calls)):
                await batch.attendance.answer(together)
                for answer, _ in together:
                    if answer.update is not None:
                        device = self._devices[answer.key.client]
                        device.session.happen(SessionEvent.DELIVERED)
                together, size = [], 0
        for repeated in again:  # by themselves: a message has one answer of a device
            await batch.attendance.answer([repeated])
        if self._willingness is not None:
            await self._willingness.train_own(batch, choices)

    def _sent_again(
        self, call: Call, choice: Choice, answer: Answer, batch: CallBatch
    ) -> list[tuple[Answer, Body]]:
        """What faults make a device send after its answer to a call."""
        resent = self._devices[call.key.client].resent(call, choice.step)
        if self._held is not None:
            resent = [self._held.announced(stored, batch.work.entries) for stored in resent]
        return [(answer._replace(key=u.key, update=u), body) for u, body in resent]

    async def _answer_with_update(
        self, call: Call, choice: Choice, batch: CallBatch
    ) -> tuple[Answer, Body] | None:
        """The answer to a call and the body of its update; None if the device sends no answer."""
        try:
            stored = await self._update_for(call, choice, batch)
        except TrainingError as error:
            return self._answer(call, choice.failed(error), batch), b""
        if stored is not None:
            if self._held is not None:
                stored = self._held.announced(stored, batch.work.entries)
            return self._answer(call, choice, batch, stored.update), stored.body
        if choice.decision is Decision.ACCEPT:
            return None
        if choice.decision is Decision.ABORT and self._fails_silently(choice):
            choice = choice._replace(decision=Decision.ACCEPT, reason=None)
        return self._answer(call, choice, batch), b""

    async def _handle_in_bulk(self, batch: CallBatch) -> None:
        """Send the answers first, then the updates one after the other."""
        choices = await self._with_slots(batch.calls, self._choose(batch))
        if self._willingness is not None:
            choices = await self._willingness.judge(batch, choices)
        self._ahead.begin(batch, choices)
        at_once = [
            answer._replace(decision=Decision.ACCEPT, reason=None)
            if answer.decision is Decision.ABORT and not self._lockstep
            else answer
            for answer in map(partial(self._answer, batch=batch), batch.calls, choices)
        ]
        await batch.attendance.answer([(answer, b"") for answer in at_once])
        for call, choice in zip(batch.calls, choices, strict=True):
            try:
                stored = await self._update_for(call, choice, batch)
            except TrainingError as error:
                gives_up = self._answer(call, choice.failed(error), batch)
                await batch.attendance.answer([(gives_up, b"")])
                continue
            if stored:
                async with self._runner.hold_slot(call) as waited_s:
                    update = stored.update._replace(slot_wait_s=waited_s)
                    damaged = self._damaged(call, choice, stored.body)
                    await batch.link.submit(update, stored.body, damaged)
                    for again in self._devices[call.key.client].resent(call, choice.step):
                        await batch.link.submit(again.update, again.body)
                self._devices[call.key.client].session.happen(SessionEvent.DELIVERED)
            elif choice.decision is Decision.ABORT and not self._lockstep:
                if not self._fails_silently(choice):
                    await batch.attendance.answer([(self._answer(call, choice, batch), b"")])
        if self._willingness is not None:
            await self._willingness.train_own(batch, choices)

    async def _with_slots(
        self, calls: Sequence[Call], choices: Sequence[Choice]
    ) -> Sequence[Choice]:
        """The choices after contending for channel slots: devices without a slot decline."""
        if self._slots is None:
            return choices
        left = []
        for call, choice in zip(calls, choices, strict=True):
            active = choice.decision is not Decision.DECLINE
            granted = await self._slots.contend(call, active)
            left.append(self._policy.denied(call, choice) if active and not granted else choice)
        return left

    def _damaged(self, call: Call, choice: Choice, body: Body) -> list[Body]:
        return self._devices[call.key.client].damaged(call, choice.step, body)

    def _choose(self, batch: CallBatch) -> list[Choice]:
        step = batch.calls[0].step if self._lockstep else self._life_clock.step()
        return self._policy.choose(batch.calls, step, batch.work)

    async def _add_up(self, batch: CallBatch, request: SumRequest) -> None:
        """Add the updates for calls to a sum, and send it if it is complete. Updates that an
        earlier process has taken with it are trained again."""
        held = self._held
        if held is None:
            raise RemoteProtocolError("the server asked for a sum of updates that were sent to it")
        # The server could ask for an update under the name of a partial sum of one device.
        if self._sum_format is not None and not request.step:
            raise RemoteProtocolError("the server asked for a sum that is not secure")
        if request.step:
            await self._take_step(batch, request, held)
            return
        if request.begins:
            held.begin(request.number, batch.work.entries)
        elif not held.continues(request.number):
            return  # its beginning was left out, as the call of an earlier round
        await self._train_lost(batch, held)
        await held.add(batch, request.weights)
        if request.ends:
            await batch.link.submit_sum(*held.complete())

    async def _take_step(self, batch: CallBatch, request: SumRequest, held: HeldUpdates) -> None:
        """Take a step of a secure sum, or say that the device refuses it."""
        if self._sum_format is None:
            raise RemoteProtocolError("the server asked for a step of a sum that is not secure")
        if self._secure is None:
            # Other devices do without the library for cryptography.
            from muster.client.calls.secure_sums import SecureSteps

            self._secure = SecureSteps(self._devices, held, self._runner, self._sum_format)
        if self._secure.needs_update(batch, request):
            await self._train_lost(batch, held)
        header, body = await self._secure.take(batch, request)
        if len(body) <= INLINE_BYTES:  # a call takes longer than the step
            await batch.attendance.reply(header, body)
        else:
            await batch.link.submit_sum(header, body)

    async def _train_lost(self, batch: CallBatch, held: HeldUpdates) -> None:
        """Train for the calls of which an earlier process has taken the updates with it."""
        if lost := held.lost(batch.calls):
            await self._train_again(batch.only(lost))

    async def _train_again(self, batch: CallBatch) -> None:
        choices = self._choose(batch)
        self._ahead.begin(batch, choices)
        for call, choice in zip(batch.calls, choices, strict=True):
            with suppress(TrainingError):  # the update is then missing in the sum
                if await self._update_for(call, choice, batch) is not None:
                    self._devices[call.key.client].session.happen(SessionEvent.DELIVERED)

    def _answer(
        self, call: Call, choice: Choice, batch: CallBatch, update: Update | None = None
    ) -> Answer:
        device = self._devices[call.key.client]
        works = choice.decision is not Decision.DECLINE
        whole_s = device.modelled_s(batch.work, choice.slowdown, choice.step)
        modelled_s = whole_s * choice.share if works else 0.0
        return Answer(
            call.key,
            choice.decision,
            modelled_s,
            choice.reason,
            update,
            choice.seen,
            choice.x,
            choice.away,
            None if choice.judgement is None else choice.judgement.valuation,
            foreseen=choice.foreseen,
            detail=choice.failure,
        )

    def _fails_silently(self, choice: Choice) -> bool:
        return not self._lockstep and choice.reason in SILENT

    async def _update_for(
        self, call: Call, choice: Choice, batch: CallBatch
    ) -> StoredUpdate | None:
        """The update for a call, stored or newly trained.

        None if there will be no update: the device declines or gives up, or the server no longer
        has the base version.

        Raises:
            TrainingError: training raised an error, and the device has given up.
        """
        device = self._devices[call.key.client]
        if choice.decision is Decision.DECLINE:
            device.session.happen(SessionEvent.DECLINED)
            return None
        if (stored := device.memory.update_for(call)) is not None:
            device.session.happen(SessionEvent.CALLED_AGAIN)
            return stored
        device.session.happen(SessionEvent.CALLED)
        if choice.decision is Decision.ABORT:
            if not self._lockstep:
                began = self._clock.monotonic()
                await self._runner.sleep_until_trained(device, choice, batch, began)
            device.give_up(call, choice.before, choice.life, choice.judgement)
            device.session.happen(SessionEvent.GAVE_UP)
            return None
        came = batch.model is not None
        download = choice.download if came else await self._runner.download(call, device, batch)
        unjudged = device.rational and choice.judgement is None
        if batch.model is None or download is None or unjudged:
            device.session.happen(SessionEvent.OUTDATED)
            log.info("round %d was closed before its model came", call.key.round)
            return None
        began = 0.0 if self._lockstep else self._clock.monotonic()
        state = choice.before, choice.life
        order = (call, batch.model, batch.work, *state, download, choice.step, choice.slowdown)
        try:
            together = batch.work.training.together > 1
            ahead = await self._ahead.trained(call, batch) if together else None
            stored = await self._runner.run(device.train, *order, choice.judgement, ahead)
        except TrainingError:
            device.give_up(call, choice.before, choice.life, choice.judgement)
            device.session.happen(SessionEvent.GAVE_UP)
            raise
        if not self._lockstep:
            await self._runner.sleep_until_trained(device, choice, batch, began)
        device.session.happen(SessionEvent.TRAINED)
        return stored
