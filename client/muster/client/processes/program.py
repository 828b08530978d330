"""The program of a pack of devices: enroll, train when called, reconnect after a broken connection.

A pack is the set of devices in one process. They share the connection of the process and nothing
else. A pack usually has one device.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop
from torch import nn

from muster.client.calls.call_batch import CallBatch
from muster.client.calls.worker import Worker
from muster.client.connection.attendance import Attendance, end_all, ended_in_order, first_error
from muster.client.connection.backoff import Backoff
from muster.client.connection.link import ServerLink
from muster.client.connection.slots import SlotClient, Slots
from muster.client.connection.transport_errors import least_wait_s
from muster.client.device.learner import Learner
from muster.client.device.policy import AlwaysAccept, DevicePolicy
from muster.client.device.session import SessionEvent, SessionPhase
from muster.client.device.training_config import TrainingConfig
from muster.client.life.clock import LifeClock
from muster.client.processes.config import PackProcess
from muster.client.training.local import fingerprint, warm
from muster.client.training.settings import Training
from muster.common import seeds
from muster.common.clock import Clock, WallClock
from muster.common.credentials import Credentials, CredentialsFile
from muster.common.errors import RemoteProtocolError, TransportError, Unauthenticated
from muster.common.exchange import Fingerprint, Identity, ToDevice
from muster.common.garbage import rarely_collect
from muster.common.masks import GroupMasks
from muster.common.processes import use_batch_scheduling
from muster.tasks.parts import layout_of
from muster.tasks.task import OpenTask
from muster.v1 import fleet_pb2 as pb
from muster.wire import messages
from muster.wire.transport import GrpcTransport, Transport

log = logging.getLogger("muster.client")

_LISTENING, _HANDLING = 0, 1
"""Indices of `_listen` and `_handle_queued_calls` in the list of tasks of an attendance."""


class Pack:
    """The devices of one process, from their first connection to the server's goodbye.

    Args:
        transport: carries the calls; None for gRPC with the credentials that `config` names.
        slots: grants channel slots; None for the gateway that `config` names, if it names one.
        module: in which the devices train, on their torch device; its parameters on entry do not
            matter. None: a new one.

    Raises:
        ConfigError: the file of its credentials is missing or damaged, or others may read it.
    """

    def __init__(
        self,
        config: PackProcess,
        task: OpenTask,
        clock: Clock,
        transport: Transport | None = None,
        slots: Slots | None = None,
        module: nn.Module | None = None,
    ) -> None:
        self._config = config
        self._credentials = CredentialsFile(Path(config.credentials))
        self._transport = transport or GrpcTransport(self._credentials)
        lockstep = config.clock.lockstep
        self._clock = clock
        module = task.module().to(config.torch_device) if module is None else module
        layout = layout_of(module)
        self._schema = layout.schema
        masks = None
        if config.mask is not None:
            masks = GroupMasks(config.mask, layout, config.capacity, config.seed)
        alone = len(config.devices) == 1
        folder = Path(config.folder)
        self._devices = {
            member.client: Learner(
                member,
                task,
                module,
                folder / member.client,
                alone,
                config.compression,
                config.line,
                lockstep,
                clock,
                masks,
                config.faults,
                config.seed,
                config.utility,
                config.clock.round_s,
                config.secure,
            )
            for member in config.devices
        }
        self._identities = [
            Identity(
                member.client,
                self._devices[member.client].held,
                config.capacity,
                member.z,
            )
            for member in config.devices
        ]
        self._policy: DevicePolicy | AlwaysAccept = AlwaysAccept(self._devices)
        if config.life is not None:
            self._policy = DevicePolicy(
                config.life, config.seed, config.devices, self._devices, lockstep
            )
        self._life_clock = LifeClock(config.clock, clock)
        self._slots = slots
        if config.slots is not None:
            self._slots = SlotClient(config.slots, self._credentials, clock)
        self._worker = Worker(
            self._devices,
            self._policy,
            config.clock,
            self._life_clock,
            self._slots,
            clock,
            task,
            module,
            config.compression if config.partial_sums else None,
            config.secure,
        )
        self._link = self._new_link()
        self._busy = False
        self._queued: dict[str, int] = {}
        """The newest round for which each device was called in a message that had to wait."""
        # Back-off must differ between devices, and between one start of a device and the next.
        draws = seeds.stream(config.seed, "back-off", config.name, str(clock.now()))
        self._backoff = Backoff(draws)
        self._calls: asyncio.Queue[ToDevice] = asyncio.Queue()
        self._fingerprint = Fingerprint(**fingerprint(config.torch_device))  # type: ignore[arg-type]

    def _new_link(self) -> ServerLink:
        config = self._config
        self._certified_by = self._credentials.current()
        shown = self._certified_by.shown
        return ServerLink(config.address, shown, self._clock, config.least, self._transport)

    async def live(self) -> None:
        """Take part in the run until the server says goodbye.

        Raises:
            RemoteProtocolError: the server refused the devices, or broke the protocol.
        """
        try:
            while not self._ended():
                broken: tuple[str, float] | None = None
                try:
                    await self._attend()
                except (TransportError, Unauthenticated) as error:
                    broken = str(error), least_wait_s(error)
                # Wait outside the except block: while the error exists, its traceback keeps the
                # frames it passed alive, and with them the stream and its connection.
                if broken is not None:
                    await self._wait_before_reconnecting(*broken)
                elif not self._ended():
                    await self._disconnect_until_back()
        finally:
            await self._link.close()
            if self._slots is not None:
                self._slots.close()

    async def _wait_before_reconnecting(self, why: str, least_s: float) -> None:
        self._advance_sessions(SessionEvent.LOST)
        wait_s = least_s + self._backoff.next_s()
        log.info("disconnected: %s; reconnecting in %.2f s", why, wait_s)
        await self._clock.sleep_until(self._clock.monotonic() + wait_s)
        if self._credentials.current() is not self._certified_by:  # they have been renewed
            await self._link.close()
            self._link = self._new_link()

    async def _disconnect_until_back(self) -> None:
        """Close the connection, wait until the device is available again, and make a new link."""
        await self._link.close()
        self._advance_sessions(SessionEvent.LOST)
        await self._until_back()
        self._link = self._new_link()

    def _advance_sessions(self, event: SessionEvent) -> None:
        """Apply an event of the connection to the session of every device."""
        for device in self._devices.values():
            device.session.happen(event)

    def _ended(self) -> bool:
        return all(device.session.phase is SessionPhase.ENDED for device in self._devices.values())

    async def _attend(self) -> None:
        """Attend for one session: until the server says goodbye or the device becomes unavailable.

        Raises:
            TransportError: the connection broke.
            Unauthenticated: the session is over. Enrolling begins a new one.
            RemoteProtocolError: the server refuses the devices, or broke the protocol.
        """
        self._advance_sessions(SessionEvent.WOKE)
        try:
            enrolled = await self._link.enroll(self._identities, self._fingerprint)
            self._work = self._training_config(enrolled)
        except RemoteProtocolError:
            self._advance_sessions(SessionEvent.REFUSED)
            raise
        self._advance_sessions(SessionEvent.ENROLLED)
        attendance = self._link.attend()
        self._calls, self._busy = asyncio.Queue(), False
        parts = [
            asyncio.create_task(part(attendance))
            for part in (
                self._listen,
                self._handle_queued_calls,
                self._send_heartbeats,
                *self._availability_parts(),
            )
        ]
        said_goodbye = False
        try:
            # A goodbye ends `_listen`, and going away ends `_watch_availability`. If any part
            # fails, all of them end.
            error = await first_error(parts)
            said_goodbye = ended_in_order(parts[_LISTENING])
            if error is None and self._leaves_silently and not said_goodbye:
                # Cancelling `_listen` would break the stream, and the server would notice that.
                await attendance.fall_silent()
                parts[_HANDLING].cancel()
                await self._until_back()
        finally:
            await end_all(parts)
        if said_goodbye:
            # Only after the parts have ended: until then they may still handle a call, and a
            # device whose session has ended must not handle one.
            self._advance_sessions(SessionEvent.GOODBYE)
            with suppress(TransportError):
                await attendance.leave()
        elif error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame, which would keep the error alive

    # --- availability, except in lockstep ----------------------------------------------------

    def _availability_parts(self) -> list[Callable[[Attendance], Coroutine[Any, Any, None]]]:
        # The devices of a larger pack share one connection, so a device that is away declines
        # its calls instead of closing it. In lockstep every device that is away declines.
        config = self._config
        goes_away = not config.clock.lockstep and len(config.devices) == 1
        return [self._watch_availability] if goes_away and config.life is not None else []

    async def _watch_availability(self, attendance: Attendance) -> None:
        """Return as soon as the device is unavailable. Scenario time begins when the server says
        so."""
        await self._life_clock.begun.wait()
        while not self._policy.away(step := self._life_clock.step()):
            await self._life_clock.until(step + 1)

    @property
    def _leaves_silently(self) -> bool:
        life = self._config.life
        return life is not None and life.availability.absence == "silent"

    async def _until_back(self) -> None:
        while self._policy.away(step := self._life_clock.step()):
            await self._life_clock.until(step + 1)

    # --- the stream ------------------------------------------------------------------------------

    def _training_config(self, enrolled: pb.Enrolled) -> TrainingConfig:
        schema = messages.decode_schema(enrolled.schema)
        if enrolled.task != self._config.task or schema != self._schema:
            raise RemoteProtocolError(
                "the server's task or model is not the one this device was started with; start "
                "both from one run folder"
            )
        training = Training.from_json(enrolled.training).of(self._config.training)
        return TrainingConfig(
            enrolled.run,
            enrolled.seed,
            training,
            schema,
            schema.body_bytes * training.vectors <= enrolled.inline_bytes,
            enrolled.heartbeat_s,
        )

    async def _send_heartbeats(self, attendance: Attendance) -> None:
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + self._work.heartbeat_s)
            seen = self._policy.observe(self._life_clock.step()) if self._life_clock.runs else []
            await attendance.heartbeat(seen)

    async def _listen(self, attendance: Attendance) -> None:
        while True:
            message = await attendance.read()
            if attendance.silent:
                continue
            self._backoff.reset()
            if message.scenario_s is not None:
                self._life_clock.begin(message.scenario_s)
            for receipt in message.receipts:
                self._link.judged(receipt)
            if message.goodbye is not None:
                return
            if not message.calls:
                continue
            if self._worker.quick and not self._busy and len(message.calls) == 1:
                batch = CallBatch(message, attendance, self._link, self._work)
                await self._worker.handle_calls(batch)
            else:
                self._busy = True
                self._queued |= {call.key.client: call.key.round for call in message.calls}
                self._calls.put_nowait(message)

    async def _handle_queued_calls(self, attendance: Attendance) -> None:
        """Handle calls that take long, one message after the other, while `_listen` goes on.

        A new call never interrupts the one before it, because cancelling a write would cancel the
        whole stream. A message is left out if all of its devices have been called anew while it
        waited. Another round says nothing: some modes leave the calls of older rounds open.
        """
        while True:
            message = await self._calls.get()
            if any(self._queued[call.key.client] <= call.key.round for call in message.calls):
                batch = CallBatch(message, attendance, self._link, self._work)
                await self._worker.handle_calls(batch)
            self._busy = not self._calls.empty()


def warm_for_forks() -> None:
    """Do what each forked process would otherwise do for itself, in memory of its own: import what
    training needs, and build the validators of what a device reads (`Section`), of 7 MiB."""
    warm()
    for read in (Credentials, Training):
        read.model_rebuild()


def main(config: PackProcess, task: OpenTask, module: nn.Module | None = None) -> None:
    """Run the devices of a pack until the run is over.

    Args:
        module: see `Pack`.
    """
    use_batch_scheduling()
    rarely_collect()
    uvloop.run(_run(config, task, module))


async def _run(config: PackProcess, task: OpenTask, module: nn.Module | None) -> None:
    # The pack is made inside the event loop, because a channel belongs to the loop that is running
    # when the channel is made.
    await Pack(config, task, WallClock(), module=module).live()
