"""The device's program: come, train when called, come back when the connection breaks."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from muster.client.backoff import Backoff
from muster.client.config import DeviceProcess, Training
from muster.client.link import Attendance, Link
from muster.client.memory import Held, Memory, State
from muster.client.session import Event, Phase, Session
from muster.client.training import Trained, fingerprint, train
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
    Update,
)
from muster.common.tensors import Schema
from muster.tasks.models import schema as schema_of_module
from muster.tasks.task import Examples, OpenTask
from muster.v1 import fleet_pb2 as pb
from muster.wire import messages
from muster.wire.bodies import body_view, checksum, decode_vector

log = logging.getLogger("muster.client")


_QUICK_S = 0.005
"""A round that trained faster than this is trained on the event loop the next time: the loop can be
away for that long, and a thread costs as much as a tiny model's round."""

_Called = tuple[Call, tuple[int, bytes] | None]
"""A call, and the model it is based on when that came with it."""


@dataclass(slots=True)
class Work:
    """What the server said there is to learn."""

    run: str
    seed: int
    training: Training
    schema: Schema
    inline_bytes: int
    heartbeat_s: float


class Device:
    """One device, from its first connection to the server's goodbye."""

    def __init__(self, config: DeviceProcess, task: OpenTask, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._task = task
        self._examples: Examples = task.client(config.index)
        self._module = task.module()
        self._schema = schema_of_module(self._module)
        self._memory = Memory(Path(config.folder))
        self._link = Link(config.address, bytes.fromhex(config.token), clock)
        self._session = Session(config.client)
        self._trainer = ThreadPoolExecutor(1, thread_name_prefix="train")
        self._committed = Commit()
        self._quick = False
        # What a back-off is for is that devices differ, and one from its earlier self.
        draws = seeds.stream(config.seed, "back-off", config.client, str(clock.now()))
        self._backoff = Backoff(draws)
        self._calls: asyncio.Queue[_Called] = asyncio.Queue()
        self._fingerprint = Fingerprint(**fingerprint())  # type: ignore[arg-type]

    async def live(self) -> None:
        """Until the server says goodbye, or refuses the device.

        Raises:
            RemoteProtocolError: it refused, or broke the protocol.
        """
        try:
            while self._session.phase is not Phase.ENDED:
                try:
                    await self._attend()
                except (TransportError, Unauthenticated) as error:
                    self._session.happen(Event.LOST)
                    wait_s = self._backoff.next_s()
                    log.info("away: %s; again in %.2f s", error, wait_s)
                    await self._clock.sleep_until(self._clock.monotonic() + wait_s)
        finally:
            await self._link.close()

    async def _attend(self) -> None:
        self._session.happen(Event.WOKE)
        try:
            enrolled = await self._link.enroll(
                self._config.client, len(self._examples), self._fingerprint
            )
            self._work = self._understand(enrolled)
        except RemoteProtocolError:
            self._session.happen(Event.REFUSED)
            raise
        self._committed = messages.decode_commit(enrolled.committed)
        self._session.happen(Event.ENROLLED)
        attendance = self._link.attend()
        self._calls = asyncio.Queue()
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
        while self._session.phase is not Phase.ENDED:
            message = await attendance.read()
            self._backoff.reset()
            for called in self._hear(message):
                if self._quick and self._session.phase is Phase.IDLE and self._calls.empty():
                    await self._obey(*called, attendance)
                else:
                    self._calls.put_nowait(called)

    def _hear(self, message: ToDevice) -> list[_Called]:
        """Take note of a message; return the calls in it."""
        if message.committed is not None:
            self._committed = message.committed
        for receipt in message.receipts:
            if receipt.outcome is Outcome.REFUSED:
                log.warning("refused: %s: %s", receipt.reason, receipt.detail)
        if message.goodbye is not None:
            self._session.happen(Event.GOODBYE)
            return []
        return [(call, message.model) for call in message.calls]

    async def _work_on(self, attendance: Attendance) -> None:
        """Obey calls that take long, one after the other, while `_listen` goes on listening.

        A call never interrupts the one before it: cancelling a write would cancel the whole stream.
        """
        while True:
            await self._obey(*await self._calls.get(), attendance)

    async def _obey(
        self, call: Call, model: tuple[int, bytes] | None, attendance: Attendance
    ) -> None:
        """Answer a call: with the update that is held for it, or with a newly trained one."""
        held = self._memory.update_for(call.key, call.base_version)
        inline = self._work.schema.body_bytes <= self._work.inline_bytes
        modelled_s = self._modelled_s()
        if not inline:
            await attendance.answer(Answer(call.key, Decision.ACCEPT, modelled_s))
        if held is None:
            self._session.happen(Event.CALLED)
            held = await self._train(call, model)
            if held is None:
                self._session.happen(Event.OUTDATED)
                log.info("round %d was closed before its model came", call.key.round)
                return
            self._session.happen(Event.TRAINED)
        else:
            self._session.happen(Event.CALLED_AGAIN)
        if inline:
            update, body = held.update, bytes(held.body)
            await attendance.answer(
                Answer(call.key, Decision.ACCEPT, modelled_s, None, update, body)
            )
        else:
            await self._submit(held)
        self._session.happen(Event.DELIVERED)

    async def _train(self, call: Call, model: tuple[int, bytes] | None) -> Held | None:
        """The update of a call; None when its base version is gone."""
        began = self._clock.monotonic()
        length = self._work.schema.body_bytes
        body = model[1] if model is not None else await self._link.fetch(call, length)
        if body is None:
            return None
        fetch_s = self._clock.monotonic() - began
        before = self._memory.before(call.key.round, self._committed)
        if self._quick:
            return self._train_and_hold(call, body, before, fetch_s)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._trainer, self._train_and_hold, call, body, before, fetch_s
        )

    def _train_and_hold(
        self, call: Call, body: bytes | memoryview, before: State, fetch_s: float
    ) -> Held:
        began = self._clock.monotonic()
        trained = self._trained(call, body)
        delta = body_view(trained.delta)
        update = Update(
            key=call.key,
            examples=trained.examples,
            checksum=checksum(delta),
            length=len(delta),
            train_s=self._clock.monotonic() - began,
            fetch_s=fetch_s,
            loss=trained.loss,
            modelled_s=self._modelled_s(),
        )
        after = State(trained=before.trained + 1)
        held = Held(call.base_version, before, after, update, delta)
        self._memory.hold(held)
        self._quick = self._clock.monotonic() - began < _QUICK_S
        return held

    def _trained(self, call: Call, body: bytes | memoryview) -> Trained:
        return train(
            self._task,
            self._module,
            decode_vector(body, self._work.schema),
            self._examples,
            self._work.training,
            seed=self._work.seed,
            client=self._config.client,
            round=call.key.round,
            base_version=call.base_version,
        )

    async def _submit(self, held: Held) -> Receipt:
        receipt = await self._link.submit(held.update, held.body)
        if receipt.outcome is Outcome.REFUSED:
            log.warning("refused: %s: %s", receipt.reason, receipt.detail)
        return receipt

    def _modelled_s(self) -> float:
        """Modelled seconds of training a round: examples seen over the device's speed."""
        speed = self._config.examples_per_s
        if speed is None:
            return 0.0
        return self._work.training.examples_seen(len(self._examples)) / speed


def main(config: DeviceProcess, task: OpenTask) -> None:
    """Live as a device until the run is over."""
    uvloop.run(_live(config, task))


async def _live(config: DeviceProcess, task: OpenTask) -> None:
    # Made inside the loop: a channel belongs to the loop that runs when it is made.
    await Device(config, task, WallClock()).live()
