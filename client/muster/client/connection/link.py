"""The connection of a pack of devices to the server: two channels, and the calls over them.

This module turns errors of gRPC into errors of muster. The caller decides what to do about them.
"""

import logging
from collections.abc import AsyncIterator, Sequence

import grpc

from muster.client.connection.attendance import Attendance
from muster.client.connection.transport_errors import error_of, least_wait_s
from muster.common.clock import Clock
from muster.common.errors import Interrupted, RemoteProtocolError, TransportError, Unauthenticated
from muster.common.exchange import (
    Body,
    Call,
    Fingerprint,
    Identity,
    Key,
    Outcome,
    Reason,
    Receipt,
    SumHeader,
    Update,
)
from muster.common.lines import LinkModel
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import CHUNK_BYTES, PROTOCOL_VERSION, SESSION, TOKEN, UPLOAD_BYTES, messages
from muster.wire.bodies import checksum, chunks
from muster.wire.channels import client_options
from muster.wire.handlers import attend
from muster.wire.transport import GRPC, Transport

log = logging.getLogger("muster.client")

_ENROLL_S = 10.0
_TRIES = 5
"""Tries of one transfer without any progress after which the session begins anew."""

_AGAIN_S = 0.1
"""Seconds to wait before the second try; doubled before every further try."""

_PIECE_S = 2.0
_PIECE_BYTES = 16 << 10
"""On a slow link a chunk takes about `_PIECE_S` seconds but has at least `_PIECE_BYTES`. Chunks are
short there because nothing is kept of a chunk that breaks off."""

_UNKNOWN = (1 << 63) - 1
"""An offset that is always wrong; the server answers it with the right one."""


class ServerLink:
    """The two channels of a pack. Open one link per process, not per call.

    Args:
        address: "host:port" of the server or of the pack's gateway.
        shown: what the process shows when it enrolls (`Credentials.shown`).
        line: the model of the connection; decides timeouts and how much to send at once.
        transport: carries the calls.
    """

    def __init__(
        self, address: str, shown: bytes, clock: Clock, line: LinkModel, transport: Transport = GRPC
    ) -> None:
        options = client_options(line)
        self._control = transport.channel(address, options)
        self._bulk = transport.channel(address, options)
        self._line = line
        self._partial: tuple[bytes, bytearray] = b"", bytearray()
        self._fleet = fleet_pb2_grpc.FleetStub(self._control)
        self._attend = attend(self._control)
        self._transfers = fleet_pb2_grpc.FleetStub(self._bulk)
        self._shown = shown
        self._clock = clock
        self._session: tuple[tuple[str, bytes], ...] = ()
        self._sending: Key | None = None
        self._judged: Receipt | None = None

    async def close(self) -> None:
        await self._control.close()
        await self._bulk.close()

    async def enroll(self, devices: Sequence[Identity], fingerprint: Fingerprint) -> pb.Enrolled:
        """Enroll the devices, which begins a session.

        Raises:
            RemoteProtocolError: the server refuses the devices; the message has its reason.
            TransportError: the network failed; try again.
        """
        request = pb.EnrollRequest(
            protocol_version=PROTOCOL_VERSION,
            devices=[messages.encode_identity(device) for device in devices],
            fingerprint=messages.encode_fingerprint(fingerprint),
        )
        try:
            reply: pb.EnrollReply = await self._fleet.Enroll(
                request,
                metadata=((TOKEN, self._shown),),
                timeout=_ENROLL_S + self._line.patience_s(request.ByteSize()),
            )
        except grpc.aio.AioRpcError as error:
            ours = error_of(error, definite=True)
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
        return Attendance(self._attend(metadata=self._session))

    async def fetch(self, call: Call, length: int) -> tuple[memoryview, float] | None:
        """Download a model version, resuming where an earlier try broke off.

        Args:
            length: bytes of what the device downloads for the call.

        Returns:
            The body, and the monotonic seconds at which its first byte came; None if the server no
            longer has the version.

        Raises:
            RemoteProtocolError: the body repeatedly had another length or checksum than announced.
            TransportError: the transfer broke too often.
        """
        retries, damaged, came_at = _RetryPolicy(self._clock), 0, None
        while True:
            body = self._partial_of(call.model_checksum)
            try:
                began_at = await self._download(call, body, length)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return None
                if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                    self._forget_partial()
                    await retries.wait_after(
                        Interrupted(f"the server refused the offset: {error}"), 0
                    )
                else:
                    await retries.wait_after(error_of(error), len(body))
                continue
            came_at = came_at or began_at
            self._forget_partial()
            if len(body) == length and checksum(memoryview(body)) == call.model_checksum:
                return memoryview(body), came_at or self._clock.monotonic()
            damaged += 1
            if damaged == _TRIES:
                raise RemoteProtocolError(
                    f"version {call.base_version} came {damaged} times as {len(body)} bytes with "
                    f"another checksum; expected {length}"
                )

    def _partial_of(self, model_checksum: bytes) -> bytearray:
        """The part of a model that earlier tries have received, perhaps in an earlier session."""
        if self._partial[0] != model_checksum:
            self._partial = model_checksum, bytearray()
        return self._partial[1]

    def _forget_partial(self) -> None:
        self._partial = b"", bytearray()

    async def _download(self, call: Call, body: bytearray, length: int) -> float | None:
        """Append the missing bytes of a model to `body`.

        Returns the monotonic seconds at which the first byte came, None if nothing was missing.
        """
        if len(body) >= length:
            return None
        fetching = self._transfers.Fetch(
            pb.FetchRequest(
                version=call.base_version,
                offset=len(body),
                chunk_bytes=_piece_bytes(self._line.down_bps, CHUNK_BYTES),
                client=call.key.client,
                round=call.key.round,
            ),
            metadata=self._session,
            wait_for_ready=True,
        )
        try:
            await fetching.initial_metadata()  # sent when it is our turn; the body follows at once
            turn, began_at = self._clock.monotonic(), None
            async for chunk in fetching:
                began_at = began_at or turn
                body += chunk.data
        finally:
            fetching.cancel()  # else the server would keep the turn for a device that reads no more
        return began_at

    async def submit(self, update: Update, body: Body, damaged: Sequence[Body] = ()) -> Receipt:
        """Upload an update, resuming where an earlier try broke off, and return the receipt.

        Args:
            damaged: what a fault lets arrive in place of the body, one after the other.

        Raises:
            TransportError: the transfer broke too often.
        """
        offset, retries = 0, _RetryPolicy(self._clock)
        bodies = [*damaged, body]
        self._sending, self._judged = update.key, None
        while self._judged is None:
            try:
                receipt = await self._upload(update, bodies[0], offset)
            except grpc.aio.AioRpcError as error:
                await retries.wait_after(error_of(error), 0 if offset == _UNKNOWN else offset)
                # Only the server knows how much arrived. It answers a wrong offset with the right
                # one.
                offset = _UNKNOWN
                continue
            if receipt.reason is Reason.CHECKSUM:  # damaged on the way: send all of it again
                await retries.wait_after(Interrupted(receipt.detail), 0)
                offset, bodies = 0, bodies[1:] or bodies
            elif receipt.outcome is not Outcome.RESUME:
                if receipt.outcome is Outcome.REFUSED:
                    _warn(receipt)
                return receipt
            else:
                offset = receipt.offset
        return self._judged

    async def submit_sum(self, header: SumHeader, body: Body) -> None:
        """Upload the sum of updates that are held back.

        Raises:
            TransportError: the transfer broke too often.
        """
        offset, retries = 0, _RetryPolicy(self._clock)
        while True:
            try:
                receipt = await self._upload_sum(header, body, offset)
            except grpc.aio.AioRpcError as error:
                await retries.wait_after(error_of(error), 0 if offset == _UNKNOWN else offset)
                offset = _UNKNOWN  # only the server knows how much arrived
                continue
            if receipt.done:
                return
            if receipt.damaged:
                await retries.wait_after(Interrupted("the sum was damaged on the way"), 0)
            offset = receipt.offset

    async def _upload_sum(self, header: SumHeader, body: Body, offset: int) -> pb.SumReceipt:
        async def parts() -> AsyncIterator[pb.SumMessage]:
            yield messages.encode_sum_header(header, offset)
            await call.initial_metadata()
            for chunk in chunks(body, offset, _piece_bytes(self._line.up_bps, UPLOAD_BYTES)):
                yield pb.SumMessage(chunk=bytes(chunk))

        call = self._transfers.SubmitSum(parts(), metadata=self._session, wait_for_ready=True)
        receipt: pb.SumReceipt = await call
        return receipt

    def judged(self, receipt: Receipt) -> None:
        """Take a receipt that came over Attend. If its update is still being sent, stop sending."""
        if receipt.outcome is Outcome.REFUSED:
            _warn(receipt)
        if receipt.key == self._sending:
            self._judged = receipt

    async def _upload(self, update: Update, body: Body, offset: int) -> Receipt:
        async def parts() -> AsyncIterator[pb.SubmitMessage]:
            yield messages.encode_submit(update, offset)
            # Wait until it is our turn: the server would have to hold bytes that came before.
            await call.initial_metadata()
            for chunk in chunks(body, offset, _piece_bytes(self._line.up_bps, UPLOAD_BYTES)):
                if self._judged is not None:
                    return
                yield pb.SubmitMessage(chunk=bytes(chunk))

        call = self._transfers.Submit(parts(), metadata=self._session, wait_for_ready=True)
        return messages.decode_receipt(await call)


class _RetryPolicy:
    """Decides how often a broken transfer is tried again.

    A transfer that makes progress is tried without end, one that makes none `_TRIES` times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._reached = 0

    async def wait_after(self, error: Exception, reached: int) -> None:
        """Wait before the next try.

        Args:
            reached: bytes that the transfer has moved so far.

        Raises:
            TransportError: there were too many tries without progress.
            MusterError: trying again would not help.
        """
        if reached > self._reached:
            self._reached, self._failures = reached, 0
        self._failures += 1
        if not isinstance(error, TransportError) or self._failures == _TRIES:
            raise error from None
        wait_s = least_wait_s(error) + _AGAIN_S * 2 ** (self._failures - 1)
        await self._clock.sleep_until(self._clock.monotonic() + wait_s)


def _warn(refused: Receipt) -> None:
    log.warning("refused: %s: %s", refused.reason, refused.detail)


def _piece_bytes(rate_bps: float | None, most: int) -> int:
    if rate_bps is None:
        return most
    pages = int(_PIECE_S * rate_bps / 8) >> 12
    return min(most, max(_PIECE_BYTES, pages << 12))


def _names(devices: Sequence[Identity]) -> str:
    first, *others = devices
    return f"{first.client} and {len(others)} more" if others else first.client
