"""The connection of a pack of devices: two channels, and what is said over them.

Errors of gRPC become errors of muster here. Nothing decides what to do about them.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from muster.common.clock import Clock
from muster.common.errors import (
    Interrupted,
    RemoteProtocolError,
    TransportError,
    Unauthenticated,
    Unreachable,
)
from muster.common.exchange import (
    Answer,
    Call,
    Fingerprint,
    Identity,
    Observation,
    Outcome,
    Receipt,
    ToDevice,
    Update,
)
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import PROTOCOL_VERSION, SESSION, TOKEN, UPLOAD_BYTES, messages
from muster.wire.bodies import checksum, chunks
from muster.wire.channels import CLIENT_OPTIONS

_ENROLL_S = 10.0
_TRIES = 5
"""Tries of one transfer before the whole session begins anew."""

_ERRORS: dict[grpc.StatusCode, type[Exception]] = {
    grpc.StatusCode.UNAVAILABLE: Interrupted,
    grpc.StatusCode.DEADLINE_EXCEEDED: Interrupted,
    grpc.StatusCode.CANCELLED: Interrupted,
    grpc.StatusCode.UNKNOWN: Interrupted,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}


def _ours(error: grpc.aio.AioRpcError, definite: bool = False) -> Exception:
    """The error of muster that an error of gRPC stands for."""
    kind = _ERRORS.get(error.code(), RemoteProtocolError)
    if definite and kind is Interrupted:
        kind = Unreachable
    return kind(f"{error.code().name}: {error.details()}")


class Link:
    """The two channels of a pack; open one per process, not per call.

    Args:
        address: "host:port" of the server or of the pack's gateway.
        token: the fleet's token, shown to enroll.
    """

    def __init__(self, address: str, token: bytes, clock: Clock) -> None:
        self._control = grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
        self._bulk = grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
        self._fleet = fleet_pb2_grpc.FleetStub(self._control)
        self._transfers = fleet_pb2_grpc.FleetStub(self._bulk)
        self._token = token
        self._clock = clock
        self._session: tuple[tuple[str, bytes], ...] = ()

    async def close(self) -> None:
        await self._control.close()
        await self._bulk.close()

    async def enroll(self, devices: Sequence[Identity], fingerprint: Fingerprint) -> pb.Enrolled:
        """Begin a session.

        Raises:
            RemoteProtocolError: the server refuses them; it says why.
            TransportError: try again.
        """
        request = pb.EnrollRequest(
            protocol_version=PROTOCOL_VERSION,
            devices=[messages.encode_identity(device) for device in devices],
            fingerprint=messages.encode_fingerprint(fingerprint),
        )
        try:
            reply = await self._fleet.Enroll(
                request, metadata=((TOKEN, self._token),), timeout=_ENROLL_S
            )
        except grpc.aio.AioRpcError as error:
            ours = _ours(error, definite=True)
            if isinstance(ours, Unauthenticated):  # coming back would not help
                raise RemoteProtocolError(f"the server refused {_names(devices)}: {ours}") from None
            raise ours from None
        if reply.HasField("refusal"):
            reason, detail = messages.decode_refusal(reply.refusal)
            raise RemoteProtocolError(f"the server refused {_names(devices)}: {reason}: {detail}")
        self._session = ((SESSION, reply.enrolled.session),)
        return reply.enrolled

    def attend(self) -> "Attendance":
        """Open the stream of calls and answers."""
        return Attendance(self._fleet.Attend(metadata=self._session))

    async def fetch(self, call: Call, length: int) -> memoryview | None:
        """Download a model version, resuming where it broke; None when the server no longer has it,
        because its round was closed meanwhile.

        Raises:
            RemoteProtocolError: what came is not what the call announced.
            TransportError: it broke too often.
        """
        body = bytearray()
        for attempt in range(_TRIES):
            request = pb.FetchRequest(version=call.base_version, offset=len(body))
            try:
                async for chunk in self._transfers.Fetch(request, metadata=self._session):
                    body += chunk.data
                break
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return None
                self._give_up(error, attempt)
        whole = memoryview(body)
        if len(whole) != length or checksum(whole) != call.model_checksum:
            raise RemoteProtocolError(
                f"version {call.base_version} came as {len(body)} bytes with another checksum; "
                f"expected {length}"
            )
        return whole

    async def submit(self, update: Update, body: bytes | memoryview) -> Receipt:
        """Upload an update, resuming where it broke; return the receipt.

        Raises:
            TransportError: it broke too often.
        """
        offset = 0
        for attempt in range(_TRIES):
            try:
                receipt = await self._upload(update, body, offset)
            except grpc.aio.AioRpcError as error:
                self._give_up(error, attempt)
                # How much arrived only the server knows: it answers a wrong offset with the right.
                offset = len(body)
                continue
            if receipt.outcome is not Outcome.RESUME:
                return receipt
            offset = receipt.offset
        raise Interrupted(f"the upload broke {_TRIES} times")

    async def _upload(self, update: Update, body: bytes | memoryview, offset: int) -> Receipt:
        async def parts() -> AsyncIterator[pb.SubmitMessage]:
            header = pb.SubmitHeader(update=messages.encode_update(update), offset=offset)
            yield pb.SubmitMessage(header=header)
            await call.initial_metadata()  # our turn; the server would hold what came before
            for chunk in chunks(body, offset, UPLOAD_BYTES):
                yield pb.SubmitMessage(chunk=bytes(chunk))

        call = self._transfers.Submit(parts(), metadata=self._session)
        return messages.decode_receipt(await call)

    @staticmethod
    def _give_up(error: grpc.aio.AioRpcError, attempt: int) -> None:
        """Raise unless trying again may help and has not been tried often enough."""
        ours = _ours(error)
        if not isinstance(ours, TransportError) or attempt == _TRIES - 1:
            raise ours from None


def _names(devices: Sequence[Identity]) -> str:
    first, *others = devices
    return f"{first.client} and {len(others)} more" if others else first.client


class Attendance:
    """The presence of a pack of devices: one stream, both ways.

    Attributes:
        silent: nothing is said any more; the stream stays open until somebody ends it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # A second write while one is under way breaks the call ("Internal error from Core").
        self._writing = asyncio.Lock()
        self.silent = False

    async def read(self) -> ToDevice:
        """The server's next message.

        Raises:
            Interrupted: the stream broke, or ended without a goodbye.
        """
        try:
            message = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            raise _ours(error) from None
        if message is grpc.aio.EOF:
            raise Interrupted("the server ended the stream without a goodbye")
        return messages.decode_to_device(message)

    async def answer(self, answers: Sequence[Answer]) -> None:
        await self._write(pb.DeviceMessage(answers=[messages.encode_answer(a) for a in answers]))

    async def heartbeat(self, seen: Sequence[Observation] = ()) -> None:
        devices = [messages.encode_observation(observation) for observation in seen]
        await self._write(pb.DeviceMessage(heartbeat=pb.Heartbeat(devices=devices)))

    async def _write(self, message: pb.DeviceMessage) -> None:
        async with self._writing:
            if self.silent:
                return
            try:
                await self._stream.write(message)
            except grpc.aio.AioRpcError as error:
                # A write on a stream that the server has just ended is "Internal error from Core".
                if error.code() is grpc.StatusCode.INTERNAL:
                    raise Interrupted(f"the stream has ended: {error.details()}") from None
                raise _ours(error) from None
            except asyncio.InvalidStateError as error:
                raise Interrupted(f"the stream has ended: {error}") from None

    async def fall_silent(self) -> None:
        """Say nothing from now on, not in the middle of a message."""
        async with self._writing:
            self.silent = True

    async def leave(self) -> None:
        """End the stream in order: a cancelled one leaks a little memory at the server."""
        try:
            await self._stream.done_writing()
            while await self._stream.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            raise _ours(error) from None
