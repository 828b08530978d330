"""The program of a pack of devices: come, train when called, come back when the connection breaks.

A pack is the devices of one process; they share its connection and nothing else. As a rule it is
one device.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from muster.client.backoff import Backoff
from muster.client.conduct import AlwaysAccept, DevicePolicy
from muster.client.config import PackProcess, Training
from muster.client.learner import Learner, TrainingConfig
from muster.client.life_clock import LifeClock
from muster.client.link import Attendance, ServerLink
from muster.client.memory import BODY_BYTES
from muster.client.session import SessionEvent, SessionPhase
from muster.client.slots import SlotClient
from muster.client.training import fingerprint
from muster.client.worker import CallBatch, Worker, warn_of_refusal
from muster.common import seeds
from muster.common.clock import Clock, WallClock
from muster.common.errors import RemoteProtocolError, TransportError, Unauthenticated
from muster.common.exchange import (
    Fingerprint,
    Identity,
    ToDevice,
)
from muster.common.processes import rarely_collect, use_batch_scheduling
from muster.tasks.models import schema as schema_of_module
from muster.tasks.task import OpenTask
from muster.v1 import fleet_pb2 as pb
from muster.wire import messages
from muster.wire.transport import GRPC, Transport

log = logging.getLogger("muster.client")

_LISTENING, _WORKING = 0, 1
"""Places of `_listen` and `_work_on` among the parts of an attendance."""


class Pack:
    """The devices of one process, from their first connection to the server's goodbye."""

    def __init__(
        self, config: PackProcess, task: OpenTask, clock: Clock, transport: Transport = GRPC
    ) -> None:
        self._config = config
        self._transport = transport
        lockstep = config.clock.kind == "rounds"
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
                config.line,
                lockstep,
                clock,
            )
            for member in config.devices
        }
        self._identities = [
            Identity(
                member.client,
                len(self._devices[member.client].examples),
                config.capacity,
                member.z,
            )
            for member in config.devices
        ]
        self._conduct: DevicePolicy | AlwaysAccept = AlwaysAccept(self._devices)
        if config.life is not None:
            self._conduct = DevicePolicy(
                config.life, config.seed, config.devices, self._devices, lockstep
            )
        self._life_clock = LifeClock(config.clock, clock)
        self._slots = None
        if config.slots is not None:
            self._slots = SlotClient(config.slots, config.token, clock)
        self._worker = Worker(
            self._devices, self._conduct, config.clock, self._life_clock, self._slots, clock
        )
        self._link = self._new_link()
        self._busy = False
        self._newest_round = 0
        # What a back-off is for is that devices differ, and one from its earlier self.
        draws = seeds.stream(config.seed, "back-off", config.name, str(clock.now()))
        self._backoff = Backoff(draws)
        self._calls: asyncio.Queue[ToDevice] = asyncio.Queue()
        self._fingerprint = Fingerprint(**fingerprint(config.torch_device))  # type: ignore[arg-type]

    def _new_link(self) -> ServerLink:
        config = self._config
        token = bytes.fromhex(config.token)
        return ServerLink(config.address, token, self._clock, config.least, self._transport)

    async def live(self) -> None:
        """Until the server says goodbye, or refuses the devices.

        Raises:
            RemoteProtocolError: it refused, or broke the protocol.
        """
        try:
            while not self._ended():
                broken: str | None = None
                try:
                    await self._attend()
                except (TransportError, Unauthenticated) as error:
                    broken = str(error)
                # Not before the error is gone: as long as it is there, so are the frames that it
                # passed, the stream in them, and the stream's connection.
                if broken is not None:
                    await self._wait_to_return(broken)
                elif not self._ended():
                    await self._stay_away()
        finally:
            await self._link.close()
            if self._slots is not None:
                self._slots.close()

    async def _wait_to_return(self, why: str) -> None:
        self._happen(SessionEvent.LOST)
        wait_s = self._backoff.next_s()
        log.info("away: %s; again in %.2f s", why, wait_s)
        await self._clock.sleep_until(self._clock.monotonic() + wait_s)

    async def _stay_away(self) -> None:
        """Close the connection of a device that cannot be reached, until it can."""
        await self._link.close()
        self._happen(SessionEvent.LOST)
        await self._until_back()
        self._link = self._new_link()

    def _happen(self, event: SessionEvent) -> None:
        """What happens to the connection happens to every device."""
        for device in self._devices.values():
            device.session.happen(event)

    def _ended(self) -> bool:
        return all(device.session.phase is SessionPhase.ENDED for device in self._devices.values())

    async def _attend(self) -> None:
        """Be present until the server says goodbye or the device can no longer be reached.

        Raises:
            TransportError: the connection broke.
            Unauthenticated: the session is over; a new one begins with enrolling.
            RemoteProtocolError: the server refuses the devices, or broke the protocol.
        """
        self._happen(SessionEvent.WOKE)
        try:
            enrolled = await self._link.enroll(self._identities, self._fingerprint)
            self._work = self._understand(enrolled)
        except RemoteProtocolError:
            self._happen(SessionEvent.REFUSED)
            raise
        self._happen(SessionEvent.ENROLLED)
        attendance = self._link.attend()
        self._calls, self._busy = asyncio.Queue(), False
        parts = [
            asyncio.create_task(part(attendance))
            for part in (self._listen, self._work_on, self._beat, *self._leaving())
        ]
        said_goodbye = False
        try:
            # The goodbye ends listening, leaving ends watching; the failure of any part ends all.
            error = await _first_error(parts)
            said_goodbye = _ended_in_order(parts[_LISTENING])
            if error is None and self._silently and not said_goodbye:
                # Whoever cancels the reading breaks the stream, and the server would notice.
                await attendance.fall_silent()
                parts[_WORKING].cancel()
                await self._until_back()
        finally:
            await _end(parts)
        if said_goodbye:
            # Not before: a call that is being obeyed until then is no call of a device that has
            # ended.
            self._happen(SessionEvent.GOODBYE)
            with suppress(TransportError):
                await attendance.leave()
        elif error is not None:
            try:
                raise error
            finally:
                del error  # which would keep itself, by its traceback and this frame

    # --- presence, where time is not the rounds' -------------------------------------------------

    def _leaving(self) -> list[Callable[[Attendance], Coroutine[Any, Any, None]]]:
        # A pack has one connection: who is away in it says so, as all do in lockstep.
        config = self._config
        goes_away = config.clock.kind != "rounds" and len(config.devices) == 1
        return [self._watch_availability] if goes_away and config.life is not None else []

    async def _watch_availability(self, attendance: Attendance) -> None:
        """Return as soon as the device cannot be reached; the life begins when the server says
        so."""
        await self._life_clock.begun.wait()
        while not self._conduct.away(step := self._life_clock.step()):
            await self._life_clock.until(step + 1)

    @property
    def _silently(self) -> bool:
        life = self._config.life
        return life is not None and life.availability.absence == "silent"

    async def _until_back(self) -> None:
        while self._conduct.away(step := self._life_clock.step()):
            await self._life_clock.until(step + 1)

    # --- the stream ------------------------------------------------------------------------------

    def _understand(self, enrolled: pb.Enrolled) -> TrainingConfig:
        schema = messages.decode_schema(enrolled.schema)
        if enrolled.task != self._config.task or schema != self._schema:
            raise RemoteProtocolError(
                "the server's task or model is not the one this device was started with; start "
                "both from one run folder"
            )
        return TrainingConfig(
            enrolled.run,
            enrolled.seed,
            Training.from_json(enrolled.training),
            schema,
            schema.body_bytes <= enrolled.inline_bytes,
            enrolled.heartbeat_s,
        )

    async def _beat(self, attendance: Attendance) -> None:
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + self._work.heartbeat_s)
            seen = self._conduct.observe(self._life_clock.step()) if self._life_clock.runs else []
            await attendance.heartbeat(seen)

    async def _listen(self, attendance: Attendance) -> None:
        while True:
            message = await attendance.read()
            if attendance.silent:
                continue
            self._backoff.reset()
            self._hear(message)
            if message.goodbye is not None:
                return
            if not message.calls:
                continue
            self._newest_round = message.calls[0].key.round
            if self._worker.quick and not self._busy and len(message.calls) == 1:
                await self._worker.obey(self._errand(message, attendance))
            else:
                self._busy = True
                self._calls.put_nowait(message)

    def _hear(self, message: ToDevice) -> None:
        if message.scenario_s is not None:
            self._life_clock.begin(message.scenario_s)
        for receipt in message.receipts:
            warn_of_refusal(receipt)
            self._link.judged(receipt)

    async def _work_on(self, attendance: Attendance) -> None:
        """Obey calls that take long, one message after the other, while `_listen` goes on.

        A call never interrupts the one before it: cancelling a write would cancel the whole stream.
        """
        while True:
            message = await self._calls.get()
            if message.calls[0].key.round >= self._newest_round:  # else closed while it waited
                await self._worker.obey(self._errand(message, attendance))
            self._busy = not self._calls.empty()

    def _errand(self, message: ToDevice, attendance: Attendance) -> CallBatch:
        return CallBatch(message, attendance, self._link, self._work)


def _ended_in_order(part: "asyncio.Task[None]") -> bool:
    return part.done() and not part.cancelled() and part.exception() is None


async def _first_error(parts: Sequence["asyncio.Task[None]"]) -> BaseException | None:
    """Wait until a part ends; return what it failed with, if it did.

    The error is not raised here: a traceback with a frame that knows the tasks, each of which knows
    its own error, would be a cycle. It would keep the stream, and with it a socket at either end,
    until garbage is collected, which devices do rarely.
    """
    done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    return next((error for part in done if (error := part.exception()) is not None), None)


async def _end(parts: "list[asyncio.Task[None]]") -> None:
    """Cancel the parts that still run, wait for their end, and forget them all."""
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)
    parts.clear()


def main(config: PackProcess, task: OpenTask) -> None:
    """Live as the devices of a pack until the run is over."""
    use_batch_scheduling()
    rarely_collect()
    uvloop.run(_live(config, task))


async def _live(config: PackProcess, task: OpenTask) -> None:
    # Made inside the loop: a channel belongs to the loop that runs when it is made.
    await Pack(config, task, WallClock()).live()
