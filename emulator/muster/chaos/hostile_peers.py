"""Devices that misuse their credentials, for tests and benchmarks.

A hostile device attacks once in every round that it is called for, and leaves open what the server
does not end. Then it declines the call, as an honest device does that is not willing, so that the
round can close. No attack sends an update that may count.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import grpc
import numpy as np

from muster.chaos.peer import Peer, enroll_request
from muster.client.connection.transport_errors import error_of, least_wait_s
from muster.common.clock import Clock
from muster.common.errors import Interrupted
from muster.server.rpc.limits import CALLS, ENROLLMENTS, FAULTS
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import CHUNK_BYTES, TOKEN, UPLOAD_BYTES
from muster.wire.bodies import checksum
from muster.wire.channels import STREAMS

AT_ONCE: Final = 8
"""Transfers that a hostile device has open at the same time."""

REFUSED_UPDATES: Final = 101
"""One more than the server enters in the account of a round."""

BOMB_BYTES: Final = 16 << 20

_STRIKE_S = 20.0
"""Seconds after which an attack that the server does not answer is left as it is."""

_AGAIN_S = 0.1

_ENDED = (grpc.aio.AioRpcError, asyncio.InvalidStateError, Interrupted, TimeoutError)
"""What a call raises that the server has ended or does not answer."""

OpenChannel = Callable[[], grpc.aio.Channel]


class HostileDevice:
    """A device alone in its process, which attacks.

    Attributes:
        strikes: how often it has attacked.
        struck: set when it has attacked once.
        answers: how the calls of its attacks ended: the status or, if the status is OK, the outcome
            in the receipt; "open" if the server had not ended the call before the next attack.

    Args:
        kind: a key of ATTACKS.
        shown: what it shows to enroll.
        examples: of the device.
        others: names of devices for which it may not speak.
    """

    def __init__(
        self,
        kind: str,
        client: str,
        shown: bytes,
        open_channel: OpenChannel,
        clock: Clock,
        examples: int = 10,
        others: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.client = client
        self.shown = shown
        self.examples = examples
        self.others = others
        self.strikes = 0
        self.struck = asyncio.Event()
        self.answers: Counter[str] = Counter()
        self._open_channel = open_channel
        self._clock = clock
        self._held: list[Any] = []
        self._channels: list[grpc.aio.Channel] = []

    def channel(self) -> grpc.aio.Channel:
        """Another connection, which is closed before the next attack."""
        self._channels.append(self._open_channel())
        return self._channels[-1]

    def enroll(self, stub: "fleet_pb2_grpc.FleetAsyncStub") -> Any:
        """Begin a new session; return the call."""
        request = enroll_request([self.client], self.examples)
        return stub.Enroll(request, metadata=((TOKEN, self.shown),))

    async def play(self) -> None:
        """Take part in the run until it is cancelled."""
        attacked, channel = 0, self._open_channel()
        try:
            while True:
                try:
                    async with asyncio.timeout(_STRIKE_S):
                        peer = await self._attend(channel)
                    while True:
                        call = await peer.called()
                        if call.round != attacked:
                            attacked = call.round
                            await self._strike(peer, call)
                        await peer.decline(call)
                except _ENDED as error:
                    wait_s = _AGAIN_S
                    if isinstance(error, grpc.aio.AioRpcError):
                        wait_s = max(wait_s, least_wait_s(error_of(error)))
                    await self._clock.sleep_until(self._clock.monotonic() + wait_s)
        finally:
            await self._let_go()
            await channel.close()

    async def _attend(self, channel: grpc.aio.Channel) -> Peer:
        stub = fleet_pb2_grpc.FleetStub(channel)
        enrolled = (await self.enroll(stub)).enrolled
        return await Peer.attend(self.client, enrolled, stub, self.examples)

    async def _strike(self, peer: Peer, call: pb.Call) -> None:
        await self._let_go()
        with suppress(*_ENDED):
            async with asyncio.timeout(_STRIKE_S):
                async for made in ATTACKS[self.kind](self, peer, call):
                    self._held.append(made)
        self.strikes += 1
        self.struck.set()

    async def _let_go(self) -> None:
        """Count how the calls of the last attack ended, and end those that are still open."""
        for call in self._held:
            self.answers[await _answer(call)] += 1
            call.cancel()
        self._held.clear()
        for channel in self._channels:
            await channel.close()
        self._channels.clear()


async def _answer(call: Any) -> str:
    if not call.done():
        return "open"
    code = await call.code()
    if code is grpc.StatusCode.OK and isinstance(call, grpc.aio.StreamUnaryCall):
        return pb.Outcome.Name((await call).outcome)
    return str(code.name)


# --- attacks -------------------------------------------------------------------------------------


Attack = Callable[[HostileDevice, Peer, pb.Call], AsyncIterator[Any]]
"""Yields the calls that it makes, as it makes them."""


async def half_open_uploads(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """Headers of uploads, and nothing after them."""
    for value in range(AT_ONCE):
        update, _ = peer.update(value, call.round, call.attempt)
        submit = peer.stub.Submit(metadata=peer.metadata)
        yield submit
        await submit.write(pb.SubmitMessage(header=pb.SubmitHeader(update=update)))


async def unread_downloads(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """Downloads of which nothing is read."""
    request = pb.FetchRequest(version=call.base_version)
    for _ in range(AT_ONCE):
        fetch = peer.stub.Fetch(request, metadata=peer.metadata)
        yield fetch
    await fetch.initial_metadata()


async def body_after_body(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """The beginnings of many updates."""
    for value in range(3 * AT_ONCE):
        update, body = peer.update(value, call.round, call.attempt)
        yield await _ended(peer.upload(update, [body[:4096]]))


async def chunks_out_of_order(
    device: HostileDevice, peer: Peer, call: pb.Call
) -> AsyncIterator[Any]:
    """All chunks of an update, in wrong orders."""
    body = np.arange(peer.schema.parameters, dtype="<f4").tobytes()
    update, _ = peer.update(round=call.round, attempt=call.attempt, checksum=checksum(body))
    chunks = list(_chunks(body))
    for order in (chunks[::-1], chunks[1:] + chunks[:1], [chunks[0], *chunks[:-1]]):
        yield await _ended(peer.upload(update, order))


async def false_lengths(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """Headers that state another length than the model's, and a body that is longer than stated."""
    update, body = peer.update(round=call.round, attempt=call.attempt)
    for length in (0, 1, len(body) - 4, len(body) + 4, 1 << 40):
        wrong, _ = peer.update(round=call.round, attempt=call.attempt, length=length)
        yield await _ended(peer.upload(wrong, [body[:4096]]))
    yield await _ended(peer.upload(update, list(_chunks(body + bytes(4)))))


async def replays(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """An update of the round before, again and again."""
    update, body = peer.update(round=call.round - 1, attempt=call.attempt)
    for _ in range(REFUSED_UPDATES):
        yield await _ended(peer.upload(update, [body[:4096]]))


async def refusals_without_end(
    device: HostileDevice, peer: Peer, call: pb.Call
) -> AsyncIterator[Any]:
    """A refused update in answer to the call, again and again."""
    yield peer.stream
    for _ in range(REFUSED_UPDATES):
        await peer.send(peer.update(round=call.round, attempt=call.attempt, length=12, body=b""))
    await peer.rest()


async def impossible_numbers(
    device: HostileDevice, peer: Peer, call: pb.Call
) -> AsyncIterator[Any]:
    """An update with numbers that a ledger cannot hold."""
    yield peer.stream
    numbers = {"examples": 2**63, "length": 2**64 - 1}
    await peer.send(peer.update(round=call.round, attempt=call.attempt, body=b"", **numbers))
    await peer.rest()


async def other_names(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """Updates, answers and observations in the names of others."""
    for client in device.others:
        update, _ = peer.update(round=call.round, attempt=call.attempt, client=client)
        answer = pb.Answer(
            client=client,
            round=call.round,
            attempt=call.attempt,
            decision=pb.DECISION_ACCEPT,
            update=update,
        )
        seen = pb.Observation(client=client, state=pb.DeviceState(network="wifi"))
        heartbeat = pb.Heartbeat(devices=[seen])
        await peer.stream.write(
            pb.DeviceMessage(bodies=[b""], answers=[answer], heartbeat=heartbeat)
        )
        yield await _ended(peer.upload(update, []))


async def garbage_messages(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """A stream with a message that makes no sense, and bytes that are no message."""
    stream = peer.stub.Attend(metadata=peer.metadata)
    yield stream
    await _write_and_read(stream, pb.DeviceMessage(bodies=[bytes(3)] * 100))
    send: Any = device.channel().stream_unary("/muster.v1.Fleet/Submit")
    for _ in range(2 * FAULTS):
        yield await _ended(send(iter([b"\xff\xff\xff"]), metadata=peer.metadata))


async def large_requests_without_a_token(
    device: HostileDevice, peer: Peer, call: pb.Call
) -> AsyncIterator[Any]:
    """Requests to enroll, of more than a mebibyte, with a token that is guessed."""
    request = pb.EnrollRequest(devices=[pb.Identity(client="x" * CHUNK_BYTES)])
    for _ in range(AT_ONCE):
        yield await _ended(peer.stub.Enroll(request, metadata=((TOKEN, b"guess"),)))


async def enrollments_without_end(
    device: HostileDevice, peer: Peer, call: pb.Call
) -> AsyncIterator[Any]:
    """One new session after the other."""
    for _ in range(2 * ENROLLMENTS):
        yield await _ended(device.enroll(peer.stub))


async def too_many_calls(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """Twice the calls that a process may have open, over several connections."""
    for number in range(2 * CALLS):
        if number % (STREAMS // 2) == 0:
            stub = fleet_pb2_grpc.FleetStub(device.channel())
        probe = stub.Probe(metadata=((TOKEN, device.shown),))
        yield probe
        with suppress(*_ENDED):
            await probe.write(pb.ProbeMessage(wanted_bytes=1))
            await probe.read()


async def compression_bombs(device: HostileDevice, peer: Peer, call: pb.Call) -> AsyncIterator[Any]:
    """Messages that grow a thousandfold when they are unpacked."""
    bomb, channel = bytes(BOMB_BYTES), device.channel()
    for method, metadata in (
        ("Submit", peer.metadata),
        ("SubmitSum", peer.metadata),
        ("Enroll", ((TOKEN, device.shown),)),
        ("Attend", peer.metadata),
    ):
        begin: Any = channel.stream_stream(f"/muster.v1.Fleet/{method}")
        stream = begin(metadata=metadata, compression=grpc.Compression.Gzip)
        yield stream
        await _write_and_read(stream, bomb)


async def _write_and_read(stream: Any, message: Any) -> None:
    """Write a message, and read until the server ends the stream."""
    with suppress(*_ENDED):
        await stream.write(message)
        while await stream.read() is not grpc.aio.EOF:
            pass


async def _ended(call: Any) -> Any:
    """Wait until the server has ended a call, whatever its answer."""
    await call.code()
    return call


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), UPLOAD_BYTES):
        yield body[start : start + UPLOAD_BYTES]


ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        "half-open uploads": half_open_uploads,
        "unread downloads": unread_downloads,
        "body after body": body_after_body,
        "chunks out of order": chunks_out_of_order,
        "false lengths": false_lengths,
        "replays": replays,
        "refusals without end": refusals_without_end,
        "impossible numbers": impossible_numbers,
        "other names": other_names,
        "garbage messages": garbage_messages,
        "large requests without a token": large_requests_without_a_token,
        "enrollments without end": enrollments_without_end,
        "too many calls": too_many_calls,
        "compression bombs": compression_bombs,
    }
)
"""What a hostile device does in a round, by its kind."""
