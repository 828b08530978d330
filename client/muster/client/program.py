"""The program of a pack of devices: come, train when called, come back when the connection breaks.

A pack is the devices of one process; they share its connection and nothing else. As a rule it is
one device.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import uvloop

from muster.client.backoff import Backoff
from muster.client.config import PackProcess, Training
from muster.client.learner import Learner, Work
from muster.client.link import Attendance, Link
from muster.client.memory import BODY_BYTES, Held
from muster.client.session import Event, Phase
from muster.client.training import fingerprint
from muster.common import seeds
from muster.common.clock import Clock, WallClock
from muster.common.errors import RemoteProtocolError, TransportError, Unauthenticated
from muster.common.exchange import (
    Answer,
    Call,
    Commit,
    Decision,
    Fingerprint,
    Outcome,
    Receipt,
    ToDevice,
)
from muster.tasks.models import schema as schema_of_module
from muster.tasks.task import OpenTask
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES, messages

log = logging.getLogger("muster.client")

_ENVELOPE_BYTES = 200
"""Of an answer besides its update's body, at most, by and large."""

_QUICK_S = 0.005
"""A device that trained faster than this is trained on the event loop the next time: the loop can
be away for that long, and a thread costs as much as a tiny model's round."""


class Pack:
    """The devices of one process, from their first connection to the server's goodbye."""

    def __init__(self, config: PackProcess, task: OpenTask, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        module = task.module().to(config.torch_device)
        self._schema = schema_of_module(module)
        # The disk would be busy with the updates of many devices, which train again as fast.
        body_bytes = BODY_BYTES if len(config.devices) == 1 else 0
        folder = Path(config.folder)
        self._devices = {
            member.client: Learner(
                member,
                task,
                module,
                folder / member.client,
                body_bytes,
                config.compression,
                clock,
            )
            for member in config.devices
        }
        self._link = Link(config.address, bytes.fromhex(config.token), clock)
        self._trainer = ThreadPoolExecutor(1, thread_name_prefix="train")
        self._committed = Commit()
        self._quick = False
        self._busy = False
        # What a back-off is for is that devices differ, and one from its earlier self.
        draws = seeds.stream(config.seed, "back-off", config.name, str(clock.now()))
        self._backoff = Backoff(draws)
        self._calls: asyncio.Queue[ToDevice] = asyncio.Queue()
        self._fingerprint = Fingerprint(**fingerprint(config.torch_device))  # type: ignore[arg-type]

    async def live(self) -> None:
        """Until the server says goodbye, or refuses the devices.

        Raises:
            RemoteProtocolError: it refused, or broke the protocol.
        """
        try:
            while not self._ended():
                try:
                    await self._attend()
                except (TransportError, Unauthenticated) as error:
                    self._happen(Event.LOST)
                    wait_s = self._backoff.next_s()
                    log.info("away: %s; again in %.2f s", error, wait_s)
                    await self._clock.sleep_until(self._clock.monotonic() + wait_s)
        finally:
            await self._link.close()

    def _happen(self, event: Event) -> None:
        """What happens to the connection happens to every device."""
        for device in self._devices.values():
            device.session.happen(event)

    def _ended(self) -> bool:
        return all(device.session.phase is Phase.ENDED for device in self._devices.values())

    async def _attend(self) -> None:
        self._happen(Event.WOKE)
        try:
            examples = {client: len(device.examples) for client, device in self._devices.items()}
            enrolled = await self._link.enroll(examples, self._fingerprint)
            self._work = self._understand(enrolled)
        except RemoteProtocolError:
            self._happen(Event.REFUSED)
            raise
        self._committed = messages.decode_commit(enrolled.committed)
        self._happen(Event.ENROLLED)
        attendance = self._link.attend()
        self._calls, self._busy = asyncio.Queue(), False
        parts = [
            asyncio.create_task(part(attendance))
            for part in (self._listen, self._work_on, self._beat)
        ]
        try:
            # The goodbye ends listening; the failure of any part ends them all.
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        with suppress(TransportError):
            await attendance.leave()

    def _understand(self, enrolled: pb.Enrolled) -> Work:
        schema = messages.decode_schema(enrolled.schema)
        if enrolled.task != self._config.task or schema != self._schema:
            raise RemoteProtocolError(
                "the server's task or model is not the one this device was started with; start "
                "both from one run folder"
            )
        return Work(
            enrolled.run,
            enrolled.seed,
            Training.from_json(enrolled.training),
            schema,
            enrolled.inline_bytes,
            enrolled.heartbeat_s,
        )

    async def _beat(self, attendance: Attendance) -> None:
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + self._work.heartbeat_s)
            await attendance.heartbeat()

    async def _listen(self, attendance: Attendance) -> None:
        while not self._ended():
            message = await attendance.read()
            self._backoff.reset()
            self._hear(message)
            if not message.calls:
                continue
            idle = not self._busy and self._calls.empty()
            if self._quick and idle and len(message.calls) == 1:
                await self._obey(message, attendance)
            else:
                self._calls.put_nowait(message)

    def _hear(self, message: ToDevice) -> None:
        if message.committed is not None:
            self._committed = message.committed
        for receipt in message.receipts:
            _warn_of_refusal(receipt)
        if message.goodbye is not None:
            self._happen(Event.GOODBYE)

    async def _work_on(self, attendance: Attendance) -> None:
        """Obey calls that take long, one message after the other, while `_listen` goes on.

        A call never interrupts the one before it: cancelling a write would cancel the whole stream.
        """
        while True:
            message = await self._calls.get()
            await self._obey(message, attendance)

    async def _obey(self, message: ToDevice, attendance: Attendance) -> None:
        """Answer calls: with the updates that are held for them, or with newly trained ones."""
        self._busy = True
        if self._work.inline:
            await self._obey_inline(message, attendance)
        else:
            await self._obey_in_bulk(message, attendance)
        self._busy = not self._calls.empty()

    async def _obey_inline(self, message: ToDevice, attendance: Attendance) -> None:
        """Answer with the updates inside, as many in one message as it may hold."""
        answers: list[Answer] = []
        size = 0
        base = _Base(message, self._link, self._work, self._clock)
        for number, call in enumerate(message.calls, start=1):
            if held := await self._held(call, base):
                body = bytes(held.body)
                answers.append(self._acceptance(call)._replace(update=held.update, body=body))
                size += len(body) + _ENVELOPE_BYTES
            full = answers and size + size // len(answers) > CHUNK_BYTES
            if answers and (full or number == len(message.calls)):
                await attendance.answer(answers)
                for answer in answers:
                    self._devices[answer.key.client].session.happen(Event.DELIVERED)
                answers, size = [], 0

    async def _obey_in_bulk(self, message: ToDevice, attendance: Attendance) -> None:
        """Say that the updates will come, then send them one after the other."""
        await attendance.answer([self._acceptance(call) for call in message.calls])
        base = _Base(message, self._link, self._work, self._clock)
        for call in message.calls:
            if held := await self._held(call, base):
                _warn_of_refusal(await self._link.submit(held.update, held.body))
                self._devices[call.key.client].session.happen(Event.DELIVERED)

    def _acceptance(self, call: Call) -> Answer:
        device = self._devices[call.key.client]
        return Answer(call.key, Decision.ACCEPT, device.modelled_s(self._work))

    async def _held(self, call: Call, base: "_Base") -> Held | None:
        """The update of a call: held, or newly trained; None when its base version is gone."""
        device = self._devices[call.key.client]
        held = device.held_for(call)
        if held is not None:
            device.session.happen(Event.CALLED_AGAIN)
            return held
        device.session.happen(Event.CALLED)
        body = await base.body(call)
        if body is None:
            device.session.happen(Event.OUTDATED)
            log.info("round %d was closed before its model came", call.key.round)
            return None
        began = self._clock.monotonic()
        order = (call, body, self._work, self._committed, base.fetch_s)
        if self._quick:
            held = device.train(*order)
        else:
            loop = asyncio.get_running_loop()
            held = await loop.run_in_executor(self._trainer, device.train, *order)
        self._quick = self._clock.monotonic() - began < _QUICK_S
        device.session.happen(Event.TRAINED)
        return held


class _Base:
    """The base version of a message's calls: it came with them, or is fetched once for all.

    Attributes:
        fetch_s: wall seconds that the fetch took.
    """

    def __init__(self, message: ToDevice, link: Link, work: Work, clock: Clock) -> None:
        self._link, self._work, self._clock = link, work, clock
        self._body: bytes | memoryview | None = message.model[1] if message.model else None
        self.fetch_s = 0.0

    async def body(self, call: Call) -> bytes | memoryview | None:
        """Its body; None when the server no longer has it."""
        if self._body is None:
            began = self._clock.monotonic()
            self._body = await self._link.fetch(call, self._work.schema.body_bytes)
            self.fetch_s = self._clock.monotonic() - began
        return self._body


def _warn_of_refusal(receipt: Receipt) -> None:
    if receipt.outcome is Outcome.REFUSED:
        log.warning("refused: %s: %s", receipt.reason, receipt.detail)


def main(config: PackProcess, task: OpenTask) -> None:
    """Live as the devices of a pack until the run is over."""
    uvloop.run(_live(config, task))


async def _live(config: PackProcess, task: OpenTask) -> None:
    # Made inside the loop: a channel belongs to the loop that runs when it is made.
    await Pack(config, task, WallClock()).live()
