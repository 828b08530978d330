"""The Fleet service: decodes, calls the coordinator, and encodes. It takes no decisions itself."""

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import grpc

from muster.common.causes import outer_cause
from muster.common.clock import Clock
from muster.common.credentials import Caller
from muster.common.errors import (
    ConfigError,
    Forbidden,
    Interrupted,
    MusterError,
    RemoteProtocolError,
    RunFailed,
    Unauthenticated,
    Unencodable,
)
from muster.common.exchange import Outcome, Reason, Receipt, SumHeader, Update
from muster.server.account.traffic import Transfer
from muster.server.coordination.coordinator import Coordinator
from muster.server.coordination.shared_links import least_lines
from muster.server.fleet.devices import ConnectedPack, Outbox
from muster.server.rpc.authentication import Authentication, Context
from muster.server.rpc.downloads import Downloads
from muster.server.rpc.probe import probe
from muster.server.rpc.transfers import TransferQueue
from muster.server.updates.partial_sums import ArrivedSum
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import INLINE_BYTES, PROTOCOL_VERSION, messages

log = logging.getLogger(__name__)

STATUS: dict[type[MusterError], grpc.StatusCode] = {
    RemoteProtocolError: grpc.StatusCode.INVALID_ARGUMENT,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    Interrupted: grpc.StatusCode.UNAVAILABLE,
}
"""The gRPC status that a peer gets for an error. An error without a row is a bug in muster."""

SHOWN = 200
"""The most characters of a peer's text that an error message repeats."""


@asynccontextmanager
async def errors_as_status(
    context: Context, fail: Callable[[Exception], None]
) -> AsyncIterator[None]:
    """Abort the call with the gRPC status of its error.

    An error without a row in STATUS is a bug in muster: the status is INTERNAL, and the log gets a
    traceback; for a message that cannot be encoded, it gets one line. An error of the operating
    system, of the ledger or in code of the user's own, or a disk that was full for too long, is not
    the peer's fault; it ends the run.

    Args:
        fail: ends the run with an error.
    """
    try:
        yield
    except tuple(STATUS) as error:
        await context.abort(STATUS[type(error)], str(error))
    except (OSError, sqlite3.Error, RunFailed) as error:
        fail(error)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the run fails")
    except Unencodable as error:
        log.error("%s", error)
        await context.abort(grpc.StatusCode.INTERNAL, str(error))
    except MusterError as error:
        log.exception("a call failed in a way nobody planned")
        await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}")
    except Exception as error:
        if not outer_cause(error):
            raise
        fail(error)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the run fails")


@asynccontextmanager
async def unbroken() -> AsyncIterator[Callable[[Awaitable[None]], Awaitable[None]]]:
    """Yield a function that awaits an operation of gRPC. If the operation is interrupted, the
    context ends when the operation has: gRPC cannot end a call with a status while another
    operation is under way."""
    begun: list[asyncio.Future[None]] = []

    def whole(operation: Awaitable[None]) -> Awaitable[None]:
        begun.append(asyncio.ensure_future(operation))
        return asyncio.shield(begun[-1])

    try:
        yield whole
    except (Exception, asyncio.CancelledError):  # but not if the event loop has ended
        await asyncio.gather(*begun, return_exceptions=True)
        raise


class FleetService(fleet_pb2_grpc.FleetServicer):
    """The Fleet service of one run.

    Args:
        authentication: knows who calls. A call comes here only after it has let it pass
            (`endpoint.add_services`).
    """

    def __init__(
        self, coordinator: Coordinator, clock: Clock, authentication: Authentication
    ) -> None:
        self._coordinator = coordinator
        self._authentication = authentication
        self._fleet = coordinator.fleet
        self._clock = clock
        settings, shared = coordinator.settings, coordinator.config.shared
        lines = least_lines(shared, self._fleet, settings.transfers)
        self._patience = patience = coordinator.patience
        idle_s = settings.transfer_idle_s
        self._transfers = TransferQueue(settings.transfers, idle_s, lines, patience)
        self._downloads = Downloads(coordinator, self._transfers, clock)
        self._z = frozenset(coordinator.config.z)

    # --- Enroll ----------------------------------------------------------------------------------

    async def Enroll(self, request: pb.EnrollRequest, context: Context) -> pb.EnrollReply:
        async with errors_as_status(context, self._coordinator.fail):
            caller = self._authentication.enrolling(context)
            refusal = self._refusal_of(request, caller)
            if refusal is not None:
                return pb.EnrollReply(refusal=refusal)
            fingerprint = messages.decode_fingerprint(request.fingerprint)
            covariates = self._coordinator.receiver.covariates
            stated = [messages.decode_identity(device) for device in request.devices]
            identities = [covariates.of_identity(identity) for identity in stated]
            for old in self._fleet.packs_of(identity.client for identity in identities):
                self._transfers.end(old, "its device enrolled again")
                self._leave(old, "its device enrolled again")
            pack = self._fleet.enroll(identities, fingerprint, caller.name)
            self._coordinator.enrolled(pack)
            return pb.EnrollReply(enrolled=self._enrolled(pack))

    def _refusal_of(self, request: pb.EnrollRequest, caller: Caller) -> pb.Refusal | None:
        """Return why these devices may not enroll, or None if they may."""
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
                    f"{identity.client[:SHOWN]!r} is not one of the {len(self._fleet.devices)} "
                    "devices that may enroll",
                )
            if not caller.may_speak_for(identity.client):
                return _refusal(
                    Reason.UNKNOWN_CLIENT,
                    f"{caller.name} may not enroll {device.client}: its credentials are for "
                    f"{len(caller.clients)} other devices",
                )
            if identity.examples != device.examples:
                return _refusal(
                    Reason.EXAMPLES,
                    f"{device.client} holds {identity.examples} examples; the population says "
                    f"{device.examples}: the two ends have different data",
                )
            if unknown := identity.z.keys() - self._z:
                there = ", ".join(sorted(self._z)) or "none"
                return _refusal(
                    Reason.MALFORMED,
                    f"{device.client} has the covariate Z {min(unknown)[:SHOWN]!r}; the scenario "
                    f"has {there}",
                )
        return self._refusal_of_pack([identity.client for identity in request.devices])

    def _refusal_of_pack(self, clients: Sequence[str]) -> pb.Refusal | None:
        """Return why these devices cannot share one process, or None if they can."""
        if not clients:
            return _refusal(Reason.UNKNOWN_CLIENT, "no device is named")
        client, times = Counter(clients).most_common(1)[0]
        if times > 1:
            return _refusal(
                Reason.MALFORMED, f"{client!r} is named {times} times; expected every device once"
            )
        groups = sorted({self._fleet.devices[client].group for client in clients})
        if len(groups) > 1:
            return _refusal(
                Reason.MALFORMED,
                f"devices of the groups {', '.join(groups)} in one process; expected one group",
            )
        return None

    def _enrolled(self, pack: ConnectedPack) -> pb.Enrolled:
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

    def end_sessions(self, caller: Caller, why: str) -> None:
        """End the stream and the transfer of a process."""
        for pack in self._fleet.packs_of(caller.clients):
            self._transfers.end(pack, why)
            self._leave(pack, why)

    # --- Attend ----------------------------------------------------------------------------------

    async def Attend(self, request_iterator: Any, context: Context) -> None:  # type: ignore[override]
        async with errors_as_status(context, self._coordinator.fail):
            pack = self._authentication.pack(context)
            self._leave(pack, "it opened another stream")
            outbox = self._fleet.attend(pack, self._patience.monotonic())
            self._coordinator.attended(pack)
            writing = asyncio.create_task(self._write(outbox, context))
            reading = asyncio.create_task(self._read(pack, outbox, context))
            why = "the connection broke"
            try:
                # Reading ends when the device leaves; writing ends when the server has closed the
                # outbox.
                await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
                for task in (reading, writing):
                    if task.done():
                        task.result()
                why = "it went away"
            finally:
                reading.cancel()
                writing.cancel()
                if self._fleet.leave(pack, outbox):
                    self._coordinator.left(pack, why)

    def _leave(self, pack: ConnectedPack, why: str) -> None:
        """Mark the devices of a pack as absent if they have a stream, which is about to be
        replaced."""
        if pack.outbox is not None and self._fleet.leave(pack, pack.outbox):
            self._coordinator.left(pack, why)

    async def _read(self, pack: ConnectedPack, outbox: Outbox, context: Context) -> None:
        receiver = self._coordinator.receiver
        while (data := await context.read()) is not grpc.aio.EOF:
            if pack.outbox is not outbox:  # the stream was replaced, or the server gave it up
                return
            pack.heard_at = self._patience.monotonic()
            message = messages.decode_from_device(data)
            receiver.answers.check(pack, message)
            if message.answers and receiver.answered(pack, message.answers):
                pack.send(self._coordinator.committed)
            for seen in message.seen:
                receiver.see(pack, seen)
            if message.reply is not None:
                self._replied(pack, *message.reply)

    def _replied(self, pack: ConnectedPack, header: SumHeader, body: bytes) -> None:
        """Take the reply to a step of a secure sum."""
        sum = self._coordinator.sums.reply(pack, header, body)
        if sum is not None:
            traffic = self._coordinator.receiver.pending.traffic
            with traffic.upload(sum.key, self._clock.now()) as transfer:
                transfer.bytes += len(body)
                transfer.ending = "complete"

    @staticmethod
    async def _write(outbox: Outbox, context: Context) -> None:
        while (message := await outbox.get()) is not None:
            await context.write(messages.encode_to_device(message))

    # --- Fetch -----------------------------------------------------------------------------------

    async def Fetch(self, request: pb.FetchRequest, context: Context) -> None:  # type: ignore[override]
        async with errors_as_status(context, self._coordinator.fail):
            pack = self._authentication.pack(context)
            await self._downloads.send(request, pack, context)

    # --- Probe -----------------------------------------------------------------------------------

    async def Probe(self, request_iterator: Any, context: Context) -> AsyncIterator[pb.ProbeReply]:
        async with errors_as_status(context, self._coordinator.fail):
            async for reply in probe(request_iterator, self._clock):
                yield reply

    # --- Submit ----------------------------------------------------------------------------------

    async def Submit(self, request_iterator: Any, context: Context) -> pb.Receipt:
        async with errors_as_status(context, self._coordinator.fail):
            pack = self._authentication.pack(context)
            first = await context.read()
            if first is grpc.aio.EOF:
                raise RemoteProtocolError("Submit ended before its header")
            stated, offset = messages.decode_submit(first)
            update = self._coordinator.receiver.durations.of_update(stated)
            receipt = self._coordinator.receiver.judge(pack, update)
            if receipt is None:
                receipt = await self._receive(update, offset, pack, context)
            return messages.encode_receipt(receipt)

    async def _receive(
        self, update: Update, offset: int, pack: ConnectedPack, context: Context
    ) -> Receipt:
        receiver, asked_at = self._coordinator.receiver, self._clock.now()
        async with unbroken() as whole, AsyncExitStack() as stack:
            left = max(0, update.length - offset)
            turn = await stack.enter_async_context(self._transfers.turn(pack, left))
            if known := receiver.judge(pack, update):  # decided while it waited for its turn
                if known.outcome is Outcome.LATE:
                    receiver.pending.traffic.upload_in_vain(update.key, asked_at)
                return known
            upload = receiver.upload(pack, update, asked_at)
            if offset != upload.received:
                return Receipt(update.key, Outcome.RESUME, offset=upload.received)
            # The transfer begins before the device may send: if the run ended in between, chunks
            # would be counted nowhere.
            with receiver.sending(upload) as transfer:
                await whole(context.send_initial_metadata(()))  # it is the device's turn
                sender = upload.senders

                def wanted() -> bool:
                    # While it waited for room on the disk, its file may have gone to another.
                    return upload.verdict is None and upload.senders == sender

                while not upload.complete:
                    message = await context.read()
                    ended = message is grpc.aio.EOF
                    transfer.bytes += 0 if ended else len(message.chunk)
                    # Its round was closed, or the device sends another body instead.
                    if upload.verdict is not None:
                        transfer.ending = "cut off"
                        await stack.aclose()
                        if not ended:
                            await self._drain(transfer, update.length - offset, context)
                        break
                    # If the device came back, a newer call sends the rest; chunks of this older
                    # call would no longer be in order.
                    if ended or upload.senders != sender:
                        return Receipt(update.key, Outcome.RESUME, offset=upload.received)
                    write = partial(upload.write, message.chunk)
                    await self._coordinator.room.keep("an update", write, wanted)
                    self._patience.renew()
                    turn.moved_at = pack.heard_at = self._patience.progress_at
                else:
                    transfer.ending = "complete"
            # Without an await in between, so that no other call finds the body complete and not yet
            # received.
            return upload.verdict or receiver.receive(pack, update, upload)

    # --- SubmitSum -------------------------------------------------------------------------------

    async def SubmitSum(self, request_iterator: Any, context: Context) -> pb.SumReceipt:
        async with errors_as_status(context, self._coordinator.fail):
            pack = self._authentication.pack(context)
            first = await context.read()
            if first is grpc.aio.EOF:
                raise RemoteProtocolError("SubmitSum ended before its header")
            header, offset = messages.decode_sum_header(first)
            sum = self._coordinator.sums.begin(pack, header)
            if sum is None:
                return pb.SumReceipt(done=True)
            return await self._receive_sum(sum, offset, pack, context)

    async def _receive_sum(
        self, sum: ArrivedSum, offset: int, pack: ConnectedPack, context: Context
    ) -> pb.SumReceipt:
        """Receive the bytes of a sum, from byte `offset` on."""
        coordinator, asked_at, sender = self._coordinator, self._clock.now(), sum.senders
        sums, traffic = coordinator.sums, coordinator.receiver.pending.traffic
        left = max(0, sum.header.length - offset)

        async with unbroken() as whole, self._transfers.turn(pack, left) as turn:
            if sums.expects(sum, sender) and offset != sum.received:
                return pb.SumReceipt(offset=sum.received)
            with traffic.upload(sum.key, asked_at) as transfer:
                await whole(context.send_initial_metadata(()))  # it is the process's turn
                while sums.expects(sum, sender) and not sum.complete:
                    message = await context.read()
                    if message is grpc.aio.EOF:
                        return pb.SumReceipt(offset=sum.received)
                    transfer.bytes += len(message.chunk)
                    # While it waits for room on the disk, its file may go to another.
                    write, wanted = (
                        partial(sum.write, message.chunk),
                        partial(sums.expects, sum, sender),
                    )
                    await coordinator.room.keep("a sum", write, wanted)
                    turn.moved_at = pack.heard_at = self._patience.monotonic()
                    sums.moved(sum)
                if not sums.expects(sum, sender):
                    transfer.ending = "cut off"
                    # A newer call of the process may go on, unless nobody waits for the sum.
                    return pb.SumReceipt(done=sum.senders == sender)
                transfer.ending = "complete"
            # Without an await in between, so that no other call finds the sum complete and not yet
            # received.
            done = sums.receive(sum)
            return pb.SumReceipt(done=done, damaged=not done)

    @staticmethod
    async def _drain(transfer: Transfer, length: int, context: Context) -> None:
        """Read and count the chunks that were under way when the round of an update was closed,
        until the device ends its side. They would travel anyway; nothing else is done with them.

        Args:
            length: the most bytes that can still come.
        """
        while transfer.bytes < length:
            message = await context.read()
            if message is grpc.aio.EOF or not message.chunk:
                return
            transfer.bytes += len(message.chunk)


def _refusal(reason: Reason, detail: str) -> pb.Refusal:
    return messages.encode_refusal(reason, detail)
