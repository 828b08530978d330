"""A hostile device."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from muster.client.processes.config import PackProcess
from muster.common.clock import Clock
from muster.common.credentials import read_credentials
from muster.common.exchange import (
    Answer,
    Call,
    Decision,
    Fingerprint,
    Identity,
    Key,
    Reason,
    Update,
)
from muster.common.tensors import WIRE
from muster.tasks.task import OpenTask
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import PROTOCOL_VERSION, SESSION, TOKEN, messages
from muster.wire.bodies import checksum, chunks
from muster.wire.handlers import attend
from muster.wire.transport import Transport

_TRANSFERS = 8
_AGAIN_S = 0.5
_HOLD_S = 90.0
_ENTRY = 1e-4
"""The entries of the first body that a forging device sends for a round; those of the next are
twice as large, and so on."""


class RoguePack:
    """A pack that accepts every call, does not do what was agreed, and gives up.

    Args:
        kind: as in `muster.simulation.faults.Rogue`.
    """

    def __init__(
        self, config: PackProcess, task: OpenTask, clock: Clock, transport: Transport, kind: str
    ) -> None:
        self._config = config
        self._clock = clock
        self._kind = kind
        self._channel = transport.channel(config.address, [])
        self._fleet = fleet_pb2_grpc.FleetStub(self._channel)
        self._identities = [
            Identity(member.client, len(task.client(member.index)), config.capacity, member.z)
            for member in config.devices
        ]
        self._body_bytes = 0

    async def live(self) -> None:
        """Run until the server says goodbye."""
        while True:
            try:
                if await self._attend():
                    break
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)
        await self._channel.close()

    async def _attend(self) -> bool:
        fingerprint = messages.encode_fingerprint(Fingerprint("rogue", "none", "cpu", 1))
        reply = await self._fleet.Enroll(
            pb.EnrollRequest(
                protocol_version=PROTOCOL_VERSION,
                devices=[messages.encode_identity(identity) for identity in self._identities],
                fingerprint=fingerprint,
            ),
            metadata=((TOKEN, read_credentials(Path(self._config.credentials)).shown),),
        )
        metadata = ((SESSION, reply.enrolled.session),)
        parameters = messages.decode_schema(reply.enrolled.schema).parameters
        self._body_bytes = self._config.compression.length(parameters)
        every_s = reply.enrolled.heartbeat_s
        # The next stream replaces this one, and the server calls again over it.
        if self._kind == "forged" and await self._take_part(metadata, every_s, until_called=True):
            return True
        return await self._take_part(metadata, every_s)

    async def _take_part(self, metadata: Any, every_s: float, until_called: bool = False) -> bool:
        """Take part over a stream, at most until it brings a call, if that is wanted; return
        whether the server said goodbye."""
        stream: Any = attend(self._channel)(metadata=metadata)
        beating = asyncio.create_task(self._beat(stream, every_s))
        try:
            return await self._handle_calls(stream, metadata, until_called)
        finally:
            beating.cancel()

    async def _beat(self, stream: Any, every_s: float) -> None:
        """Send heartbeats, so that the device does not count as absent."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await self._clock.sleep_until(self._clock.monotonic() + every_s)
                await stream.write(messages.encode_heartbeat([]))

    async def _handle_calls(self, stream: Any, metadata: Any, until_called: bool) -> bool:
        """Handle calls until the stream ends; return whether the server said goodbye."""
        while (data := await stream.read()) is not grpc.aio.EOF:
            message = messages.decode_to_device(data)
            if message.goodbye is not None:
                await stream.done_writing()
                return True
            if message.calls and until_called:
                return False
            for call in message.calls:
                await stream.write(self._answer(call, Decision.ACCEPT))
                if self._kind == "forged":
                    await self._forge(call, metadata)
                else:
                    await asyncio.gather(*(self._hold(call, metadata) for _ in range(_TRANSFERS)))
                await stream.write(self._answer(call, Decision.ABORT))
        return False

    def _answer(self, call: Call, decision: Decision) -> bytes:
        reason = Reason.DROP_OUT if decision is Decision.ABORT else None
        return messages.encode_answers([(Answer(call.key, decision, 0.0, reason), b"")])

    async def _hold(self, call: Call, metadata: Any) -> None:
        """Open a transfer, and wait until the server ends it."""
        with suppress(grpc.aio.AioRpcError):
            if self._kind == "unread":
                request = pb.FetchRequest(
                    version=call.base_version,
                    chunk_bytes=4096,
                    client=call.key.client,
                    round=call.key.round,
                )
                fetching = self._fleet.Fetch(request, metadata=metadata)
                # The server can give the turn to other devices, but cannot end this call while a
                # message is being sent.
                with suppress(TimeoutError):
                    await asyncio.wait_for(fetching.code(), _HOLD_S)
                fetching.cancel()
            else:
                ended = asyncio.Event()
                try:
                    await self._fleet.Submit(self._parts(call, ended), metadata=metadata)
                finally:
                    ended.set()

    async def _forge(self, call: Call, metadata: Any) -> None:
        """Send an update for every attempt, if there was more than one, each with another body; an
        update for a call that nobody has made, two bodies under one key at the same time, and a
        third one under it when it has been judged; ask for the model of another round."""
        client, round, attempt = call.key
        for number in range(1, attempt + 1) if attempt > 1 else ():
            whole = np.full(-(-self._body_bytes // WIRE.itemsize), number * _ENTRY, WIRE).tobytes()
            key = Key(client, round, number)
            body = whole[: self._body_bytes]
            await self._submit(self._update(key, body), body, metadata)
        body = b"\xff" * self._body_bytes  # not finite, or malformed
        foreign = self._update(Key(client, round, attempt + 100), body)
        await self._submit(foreign, body, metadata)
        update = self._update(call.key, body)
        begun = asyncio.create_task(
            self._submit(update._replace(checksum=bytes(16)), body[:1], metadata)
        )
        await self._submit(update, body, metadata)
        await begun
        await self._submit(update._replace(checksum=b"\xff" * 16), body, metadata)
        request = pb.FetchRequest(
            version=call.base_version, chunk_bytes=4096, client=client, round=round + 100
        )
        fetching = self._fleet.Fetch(request, metadata=metadata)
        with suppress(grpc.aio.AioRpcError):
            await fetching.read()
        fetching.cancel()

    async def _submit(self, update: Update, body: bytes, metadata: Any) -> None:
        """Send some bytes as the body of an update."""

        async def parts() -> AsyncIterator[pb.SubmitMessage]:
            yield messages.encode_submit(update, 0)
            for chunk in chunks(body):
                yield pb.SubmitMessage(chunk=bytes(chunk))

        with suppress(grpc.aio.AioRpcError):
            await self._fleet.Submit(parts(), metadata=metadata)

    def _update(self, key: Key, body: bytes) -> Update:
        examples = next(i.examples for i in self._identities if i.client == key.client)
        return Update(key, examples, checksum(body), len(body), 0.0, 0.0, 0.0, steps=1)

    async def _parts(self, call: Call, ended: asyncio.Event) -> AsyncIterator[pb.SubmitMessage]:
        update = self._update(call.key, bytes(self._body_bytes))
        yield messages.encode_submit(update._replace(checksum=bytes(16)), 0)
        while not ended.is_set():
            await self._clock.sleep_until(self._clock.monotonic() + 1.0)
            if self._kind == "empty":
                yield pb.SubmitMessage(chunk=b"")
