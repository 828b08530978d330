"""The Fleet service: authenticate, decode, call the domain, encode. No decision is taken here."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc

from muster.common.clock import Clock
from muster.common.errors import (
    ConfigError,
    MusterError,
    RemoteProtocolError,
    Unauthenticated,
)
from muster.common.exchange import Outcome, Reason, Receipt, Update
from muster.server.coordinator import Coordinator
from muster.server.fleet import Outbox, Pack, same_token
from muster.server.probe import probe
from muster.server.traffic import Transfer
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import CHUNK_BYTES, INLINE_BYTES, PROTOCOL_VERSION, SESSION, TOKEN, messages

log = logging.getLogger(__name__)

STATUS: dict[type[MusterError], grpc.StatusCode] = {
    RemoteProtocolError: grpc.StatusCode.INVALID_ARGUMENT,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
}
"""What a peer is told of an error; an error without a row is a bug of ours."""

Context = grpc.aio.ServicerContext[Any, Any]


@asynccontextmanager
async def errors_as_status(
    context: Context, fail: Callable[[Exception], None]
) -> AsyncIterator[None]:
    """Abort the call with the status its error stands for.

    An error without a row in STATUS is a bug of ours: INTERNAL, with a traceback in the log. What
    the operating system or the ledger refuse is no peer's fault: it ends the run.

    Args:
        fail: ends the run with an error.
    """
    try:
        yield
    except tuple(STATUS) as error:
        await context.abort(STATUS[type(error)], str(error))
    except (OSError, sqlite3.Error) as error:
        fail(error)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the run fails")
    except MusterError as error:
        log.exception("a call failed in a way nobody planned")
        await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}")


def metadata(context: Context, key: str) -> bytes | None:
    """A binary metadata value of the call."""
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return value if isinstance(value, bytes) else value.encode()
    return None


class FleetService(fleet_pb2_grpc.FleetServicer):
    """The Fleet service of one run."""

    def __init__(self, coordinator: Coordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._fleet = coordinator.fleet
        self._clock = clock
        self._transfers = asyncio.Semaphore(coordinator.settings.transfers)
        self._token = bytes.fromhex(coordinator.config.fleet_token)

    def _pack(self, context: Context) -> Pack:
        return self._fleet.of_session(metadata(context, SESSION))

    # --- Enroll ----------------------------------------------------------------------------------

    async def Enroll(self, request: pb.EnrollRequest, context: Context) -> pb.EnrollReply:
        async with errors_as_status(context, self._coordinator.fail):
            if not same_token(metadata(context, TOKEN), self._token):
                raise Unauthenticated("the fleet's token is missing or wrong")
            refusal = self._unwelcome(request)
            if refusal is not None:
                return pb.EnrollReply(refusal=refusal)
            fingerprint = messages.decode_fingerprint(request.fingerprint)
            identities = [messages.decode_identity(device) for device in request.devices]
            pack = self._fleet.enroll(identities, fingerprint)
            self._coordinator.enrolled(pack)
            return pb.EnrollReply(enrolled=self._enrolled(pack))

    def _unwelcome(self, request: pb.EnrollRequest) -> pb.Refusal | None:
        if request.protocol_version != PROTOCOL_VERSION:
            return _refusal(
                Reason.PROTOCOL_VERSION,
                f"the device speaks protocol {request.protocol_version}, this server "
                f"{PROTOCOL_VERSION}: run the same version of muster on both ends",
            )
        for identity in request.devices:
            device = self._fleet.devices.get(identity.client)
            if device is None:
                return _refusal(
                    Reason.UNKNOWN_CLIENT,
                    f"{identity.client!r} is not one of the {len(self._fleet.devices)} devices "
                    "that may enroll",
                )
            if identity.examples != device.examples:
                return _refusal(
                    Reason.EXAMPLES,
                    f"{device.client} holds {identity.examples} examples; the population says "
                    f"{device.examples}: the two ends have different data",
                )
        if not request.devices:
            return _refusal(Reason.UNKNOWN_CLIENT, "no device is named")
        return None

    def _enrolled(self, pack: Pack) -> pb.Enrolled:
        config = self._coordinator.config
        return pb.Enrolled(
            session=pack.session,
            run=config.run,
            seed=config.seed,
            population=len(self._coordinator.config.population),
            task=config.task,
            training=config.training,
            schema=messages.encode_schema(self._coordinator.schema),
            heartbeat_s=config.server.heartbeat_s,
            inline_bytes=0 if self._coordinator.bulk(pack) else INLINE_BYTES,
            committed=messages.encode_commit(self._coordinator.committed),
        )

    # --- Attend ----------------------------------------------------------------------------------

    async def Attend(self, request_iterator: Any, context: Context) -> None:  # type: ignore[override]
        async with errors_as_status(context, self._coordinator.fail):
            pack = self._pack(context)
            outbox = self._fleet.attend(pack, self._clock.monotonic())
            self._coordinator.attended(pack)
            writing = asyncio.create_task(self._write(outbox, context))
            reading = asyncio.create_task(self._read(pack, context))
            why = "the connection broke"
            try:
                # Reading ends when the device goes, writing when the server is done with it.
                done, _ = await asyncio.wait(
                    {reading, writing}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                why = "it went away"
            finally:
                reading.cancel()
                writing.cancel()
                if self._fleet.leave(pack, outbox):
                    self._coordinator.left(pack, why)

    async def _read(self, pack: Pack, context: Context) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            pack.heard_at = self._clock.monotonic()
            answers, observations = messages.decode_from_device(data)
            if answers:
                self._coordinator.answered(pack, answers)
            for seen in observations:
                self._coordinator.intake.see(pack, seen)

    @staticmethod
    async def _write(outbox: Outbox, context: Context) -> None:
        while (message := await outbox.get()) is not None:
            await context.write(messages.encode_to_device(message))

    # --- Fetch -----------------------------------------------------------------------------------

    async def Fetch(self, request: pb.FetchRequest, context: Context) -> None:  # type: ignore[override]
        async with errors_as_status(context, self._coordinator.fail):
            pack, asked_at = self._pack(context), self._clock.now()
            coordinator = self._coordinator
            intake, length = coordinator.intake, coordinator.schema.body_bytes
            chunk_bytes = min(request.chunk_bytes or CHUNK_BYTES, CHUNK_BYTES)
            async with self._transfers:
                try:
                    chunks = coordinator.model_from(request.version, request.offset, chunk_bytes)
                except KeyError:
                    await context.abort(
                        grpc.StatusCode.NOT_FOUND,
                        f"version {request.version} was asked for; this server has version "
                        f"{coordinator.committed.version}",
                    )
                except IndexError:
                    await context.abort(
                        grpc.StatusCode.OUT_OF_RANGE,
                        f"expected an offset of at most {length} bytes; found {request.offset}. "
                        f"Fetch from 0",
                    )
                await context.send_initial_metadata(())  # it is the device's turn
                key, rest = intake.newest_call(pack), length - request.offset
                traffic = intake.books.traffic
                with traffic.download(pack, key, request.offset, asked_at) as transfer:
                    for chunk in chunks:
                        await context.write(chunk)
                        transfer.bytes = min(rest, transfer.bytes + chunk_bytes)
                        intake.progress_at = self._clock.monotonic()
                    transfer.ending = "complete"

    # --- Probe -----------------------------------------------------------------------------------

    async def Probe(self, request_iterator: Any, context: Context) -> AsyncIterator[pb.ProbeReply]:
        async with errors_as_status(context, self._coordinator.fail):
            if not same_token(metadata(context, TOKEN), self._token):
                raise Unauthenticated("the fleet's token is missing or wrong")
            async for reply in probe(request_iterator, self._clock):
                yield reply

    # --- Submit ----------------------------------------------------------------------------------

    async def Submit(self, request_iterator: Any, context: Context) -> pb.Receipt:
        async with errors_as_status(context, self._coordinator.fail):
            pack = self._pack(context)
            first = await context.read()
            if first is grpc.aio.EOF or first.WhichOneof("part") != "header":
                raise RemoteProtocolError("Submit begins with a header")
            update = messages.decode_update(first.header.update)
            receipt = self._coordinator.intake.judge(pack, update)
            if receipt is None:
                receipt = await self._receive(update, first.header.offset, pack, context)
            return messages.encode_receipt(receipt)

    async def _receive(self, update: Update, offset: int, pack: Pack, context: Context) -> Receipt:
        clock, intake = self._clock, self._coordinator.intake
        asked_at = clock.now()
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(self._transfers)
            if known := intake.judge(pack, update):  # while it waited for its turn
                if known.outcome is Outcome.LATE:
                    intake.books.traffic.upload_in_vain(update.key, asked_at)
                return known
            spill = intake.upload(pack, update, asked_at)
            if offset != spill.received:
                return Receipt(update.key, Outcome.RESUME, offset=spill.received)
            await context.send_initial_metadata(())  # it is the device's turn
            with intake.sending(spill) as transfer:
                sender = spill.senders
                while not spill.complete:
                    message = await context.read()
                    ended = message is grpc.aio.EOF
                    transfer.bytes += 0 if ended else len(message.chunk)
                    if spill.verdict is not None:  # its round was closed, on the wall clock
                        transfer.ending = "cut off"
                        await turn.aclose()
                        if not ended:
                            await self._drain(transfer, update.length - offset, context)
                        break
                    # One that came back is another sender; what the first had sent is not in order.
                    if ended or spill.senders != sender:
                        return Receipt(update.key, Outcome.RESUME, offset=spill.received)
                    spill.write(message.chunk)
                    intake.progress_at = pack.heard_at = clock.monotonic()
                else:
                    transfer.ending = "complete"
        return spill.verdict or intake.receive(pack, update, spill)

    @staticmethod
    async def _drain(transfer: Transfer, length: int, context: Context) -> None:
        """Read what was under way when the round of an update was closed, which would travel
        anyway, until the device ends its side; count it and nothing else.

        Args:
            length: the most that can come.
        """
        while transfer.bytes < length:
            message = await context.read()
            if message is grpc.aio.EOF or not message.chunk:
                return
            transfer.bytes += len(message.chunk)


def _refusal(reason: Reason, detail: str) -> pb.Refusal:
    return messages.encode_refusal(reason, detail)
