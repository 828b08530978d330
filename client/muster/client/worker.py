"""What the devices of a pack do when they are called: decide, train, deliver."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from muster.client.conduct import AlwaysAccept, Choice, DevicePolicy
from muster.client.config import ClockSettings as ClockSettings
from muster.client.learner import Download, Learner, TrainingConfig
from muster.client.life_clock import LifeClock
from muster.client.link import Attendance, ServerLink
from muster.client.memory import StoredUpdate
from muster.client.session import SessionEvent
from muster.client.slots import SlotClient
from muster.client.training import training_thread
from muster.common.clock import Clock
from muster.common.errors import Interrupted
from muster.common.exchange import (
    Answer,
    Body,
    Call,
    Decision,
    Outcome,
    Reason,
    Receipt,
    ToDevice,
    Update,
)
from muster.wire import CHUNK_BYTES

log = logging.getLogger("muster.client")

_ENVELOPE_BYTES = 200
"""Of an answer besides its update's body, at most, by and large."""

_NONE = Download()
"""Of a model that came with the calls."""

_SILENT = frozenset({Reason.DROP_OUT, Reason.POWERED_OFF})
"""Devices that give up for these say so in lockstep alone; else the server finds out."""

_QUICK_S = 0.005
_QUICK_IN_LOCKSTEP_S = 0.25
"""A device that trained faster than this is trained on the event loop the next time: the loop can
be away for that long, and a thread costs as much as a tiny model's round. In lockstep it has
nothing to miss but the goodbye, and where many devices share a machine each takes the longer."""


class CallBatch:
    """A message's calls, and what they are obeyed with.

    Attributes:
        model: body of the base version, once it is here: it came with the calls, or is fetched once
            for all.
    """

    __slots__ = ("attendance", "calls", "link", "model", "work")

    def __init__(
        self,
        message: ToDevice,
        attendance: Attendance,
        link: ServerLink,
        work: TrainingConfig,
    ) -> None:
        self.calls, self.model = message.calls, message.model
        self.attendance = attendance
        self.link = link
        self.work = work

    async def fetch(self, call: Call, clock: Clock, at: float, asked: float) -> Download | None:
        """Fetch the model and return how it came; None when the server no longer has it.

        Args:
            at, asked: UNIX and monotonic seconds when the device began to wait for it.
        """
        if (fetched := await self.link.fetch(call, self.work.schema.body_bytes)) is None:
            return None
        self.model, came_at = fetched
        return Download(at, came_at - asked, clock.monotonic() - asked)


class Worker:
    """Obeys the calls of a pack, one message after the other.

    Attributes:
        quick: whether the last calls were obeyed so fast that the next can be where they are heard.
    """

    def __init__(
        self,
        devices: Mapping[str, Learner],
        conduct: DevicePolicy | AlwaysAccept,
        settings: ClockSettings,
        life_clock: LifeClock,
        slots: SlotClient | None,
        clock: Clock,
    ) -> None:
        self.quick = False
        self._trains_quickly = False
        self._devices = devices
        self._conduct = conduct
        self._settings = settings
        self._lockstep = settings.kind == "rounds"
        self._quick_s = _QUICK_IN_LOCKSTEP_S if self._lockstep else _QUICK_S
        self._life_clock = life_clock
        self._slots = slots
        self._clock = clock
        self._trainer = training_thread()

    async def obey(self, errand: CallBatch) -> None:
        """Answer calls: with the updates that are held for them, or with newly trained ones."""
        began = self._clock.monotonic()
        if errand.work.inline:
            await self._obey_inline(errand)
        else:
            await self._obey_in_bulk(errand)
        # Where a slow device takes its time, that must not be time in which nobody listens.
        took_s = self._clock.monotonic() - began
        self.quick = self._lockstep and errand.work.inline and took_s < self._quick_s

    async def _obey_inline(self, errand: CallBatch) -> None:
        """Answer with the updates inside, as many in one message as it may hold."""
        together: list[tuple[Answer, Body]] = []
        size = 0
        choices = self._choose(errand)
        for number, (call, choice) in enumerate(zip(errand.calls, choices, strict=True), start=1):
            if (said := await self._answer_with_update(call, choice, errand)) is not None:
                together.append(said)
                size += len(said[1]) + _ENVELOPE_BYTES
            full = together and size + size // len(together) > CHUNK_BYTES
            if together and (full or number == len(errand.calls)):
                await errand.attendance.answer(together)
                for answer, _ in together:
                    if answer.update is not None:
                        self._devices[answer.key.client].session.happen(SessionEvent.DELIVERED)
                together, size = [], 0

    async def _answer_with_update(
        self, call: Call, choice: Choice, errand: CallBatch
    ) -> tuple[Answer, Body] | None:
        """None: there is nothing to say."""
        parcel = await self._parcel(call, choice, errand)
        if parcel is not None:
            return self._answer(call, choice, errand, parcel.update), parcel.body
        if choice.decision is Decision.ACCEPT:
            return None
        if choice.decision is Decision.ABORT and self._fails_silently(choice):
            choice = choice._replace(decision=Decision.ACCEPT, reason=None)
        return self._answer(call, choice, errand), b""

    async def _obey_in_bulk(self, errand: CallBatch) -> None:
        """Say what will come, then send the updates one after the other."""
        choices = await self._with_slots(errand.calls, self._choose(errand))
        at_once = [
            answer._replace(decision=Decision.ACCEPT, reason=None)
            if answer.decision is Decision.ABORT and not self._lockstep
            else answer
            for answer in map(partial(self._answer, errand=errand), errand.calls, choices)
        ]
        await errand.attendance.answer([(answer, b"") for answer in at_once])
        for call, choice in zip(errand.calls, choices, strict=True):
            if parcel := await self._parcel(call, choice, errand):
                async with self._turn(call) as waited_s:
                    update = parcel.update._replace(slot_wait_s=waited_s)
                    warn_of_refusal(await errand.link.submit(update, parcel.body))
                self._devices[call.key.client].session.happen(SessionEvent.DELIVERED)
            elif choice.decision is Decision.ABORT and not self._lockstep:
                if not self._fails_silently(choice):
                    await errand.attendance.answer([(self._answer(call, choice, errand), b"")])

    async def _with_slots(
        self, calls: Sequence[Call], choices: Sequence[Choice]
    ) -> Sequence[Choice]:
        """What is left of choices where devices need channel slots."""
        if self._slots is None:
            return choices
        left = []
        for call, choice in zip(calls, choices, strict=True):
            active = choice.decision is not Decision.DECLINE
            granted = await self._slots.contend(call, active)
            left.append(self._conduct.denied(call, choice) if active and not granted else choice)
        return left

    def _turn(self, call: Call) -> AbstractAsyncContextManager[float]:
        """The seconds that a transfer waits for a channel slot, which is held meanwhile."""
        return nullcontext(0.0) if self._slots is None else self._slots.turn(call)

    def _choose(self, errand: CallBatch) -> list[Choice]:
        step = errand.calls[0].key.round - 1 if self._lockstep else self._life_clock.step()
        return self._conduct.choose(errand.calls, step, errand.work)

    def _answer(
        self, call: Call, choice: Choice, errand: CallBatch, update: Update | None = None
    ) -> Answer:
        device = self._devices[call.key.client]
        works = choice.decision is not Decision.DECLINE
        modelled_s = device.modelled_s(errand.work) * choice.share if works else 0.0
        return Answer(
            call.key,
            choice.decision,
            modelled_s,
            choice.reason,
            update,
            choice.seen,
            choice.x,
            choice.away,
        )

    def _fails_silently(self, choice: Choice) -> bool:
        return not self._lockstep and choice.reason in _SILENT

    async def _parcel(self, call: Call, choice: Choice, errand: CallBatch) -> StoredUpdate | None:
        """The update of a call: held, or newly trained; None when none will come: the device
        declines, gives up, or its base version is gone."""
        device = self._devices[call.key.client]
        if choice.decision is Decision.DECLINE:
            device.session.happen(SessionEvent.DECLINED)
            return None
        if (parcel := device.held_for(call)) is not None:
            device.session.happen(SessionEvent.CALLED_AGAIN)
            return parcel
        device.session.happen(SessionEvent.CALLED)
        if choice.decision is Decision.ABORT:
            if not self._lockstep:
                began = self._clock.monotonic()
                await self._as_long_as(device.train_s(errand.work) * choice.share, began)
            device.give_up(call, choice.before, choice.life)
            device.session.happen(SessionEvent.GAVE_UP)
            return None
        download: Download | None = _NONE
        if errand.model is None:
            asked = self._clock.now(), self._clock.monotonic()
            async with self._turn(call):
                download = await errand.fetch(call, self._clock, *asked)
        if errand.model is None or download is None:
            if self._lockstep:  # the round is open, and waits: the session begins anew
                version = call.base_version
                raise Interrupted(f"the server has no version {version}, for which it called")
            device.session.happen(SessionEvent.OUTDATED)
            log.info("round %d was closed before its model came", call.key.round)
            return None
        began = self._clock.monotonic()
        order = (call, errand.model, errand.work, choice.before, choice.life, download)
        if self._trains_quickly:
            parcel = device.train(*order)
        else:
            loop = asyncio.get_running_loop()
            parcel = await loop.run_in_executor(self._trainer, device.train, *order)
        self._trains_quickly = self._clock.monotonic() - began < self._quick_s
        if not self._lockstep:
            await self._as_long_as(device.train_s(errand.work) * choice.share, began)
        device.session.happen(SessionEvent.TRAINED)
        return parcel

    async def _as_long_as(self, modelled_s: float, began: float) -> None:
        """Where time is not the rounds', a slow device takes its time."""
        if modelled_s > 0:
            await self._clock.sleep_until(began + modelled_s / self._settings.scale)


def warn_of_refusal(receipt: Receipt) -> None:
    """Say in the log what the server did not take."""
    if receipt.outcome is Outcome.REFUSED:
        log.warning("refused: %s: %s", receipt.reason, receipt.detail)
