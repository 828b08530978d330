"""Measures gRPC over a link, with the channel options that devices and server use."""

import asyncio
import logging
import math
import secrets
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

import grpc

from muster.common.clock import Clock
from muster.common.credentials import SERVER, Credentials, GivenCredentials, device_name
from muster.common.errors import Interrupted
from muster.common.rates.recording import Direction
from muster.emulator.credentials.issuing import Certifier, drawn_credentials
from muster.emulator.gateway.rates import model_of
from muster.emulator.verification.measuring import MeasuredLink
from muster.emulator.verification.meter import RateMeter
from muster.server.fleet.fleet import Fleet
from muster.server.rpc.authentication import Authentication, Context
from muster.server.rpc.endpoint import AuthenticatedServer
from muster.server.rpc.limits import CallLimits
from muster.server.rpc.probe import probe
from muster.server.rpc.service import errors_as_status
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import TOKEN, UPLOAD_BYTES
from muster.wire.channels import client_options, server_options
from muster.wire.transport import GrpcTransport

log = logging.getLogger(__name__)

_FLEET = pb.DESCRIPTOR.services_by_name["Fleet"].full_name

_MESSAGE_S = 0.05
_LEAST_MESSAGE_BYTES = 1 << 10
_ECHO_BYTES = 16
_AHEAD = 8


def message_bytes(rate_bps: float | None) -> int:
    """Payload of a message: the bytes that a link carries in a twentieth of a second, but at most
    those of an upload message."""
    if rate_bps is None:
        return UPLOAD_BYTES
    return int(min(UPLOAD_BYTES, max(_LEAST_MESSAGE_BYTES, _MESSAGE_S * rate_bps / 8)))


class ProbeIdentities(NamedTuple):
    """The credentials of the two ends of a measurement."""

    server: Credentials
    device: Credentials

    @classmethod
    def drawn(cls, certifier: Certifier | None = None) -> "ProbeIdentities":
        """New credentials, for a measurement only.

        Args:
            certifier: None: there is no TLS.
        """
        run = secrets.token_hex(8)
        device = drawn_credentials(run, device_name("probe"), certifier)
        return cls(drawn_credentials(run, SERVER, certifier, [device.as_caller()]), device)


class ProbeServer:
    """A server that only has the RPC Probe, on a free port of `host`.

    Args:
        identities: only their device may call.
        lines: the links of the devices that will call.
    """

    def __init__(
        self,
        identities: ProbeIdentities,
        clock: Clock,
        lines: Iterable[MeasuredLink] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self._clock, self._host = clock, host
        source = GivenCredentials(identities.server)
        self._transport = GrpcTransport(source)
        self._server = self._transport.server(
            server_options(model_of(line.shape) for line in lines)
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._probe, pb.ProbeMessage.FromString, pb.ProbeReply.SerializeToString
        )
        guarded = AuthenticatedServer(
            self._server, Authentication(source, Fleet([])), CallLimits(clock)
        )
        guarded.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_FLEET, {"Probe": handler}),)
        )

    async def _probe(self, requests: Any, context: Context) -> AsyncIterator[pb.ProbeReply]:
        async with errors_as_status(context, log.exception):
            async for reply in probe(requests, self._clock):
                yield reply

    async def start(self) -> str:
        """Listen; return the address, host:port."""
        port = self._transport.listen(self._server, f"{self._host}:0")
        await self._server.start()
        return f"{self._host}:{port}"

    async def close(self) -> None:
        await self._server.stop(None)


class _Call:
    """A call of Probe over a channel of its own, through a device's link.

    Args:
        credentials: those of the device that calls.
    """

    def __init__(self, line: MeasuredLink, credentials: Credentials, clock: Clock) -> None:
        self._channel = GrpcTransport(GivenCredentials(credentials)).channel(
            f"{line.host}:{line.port}", client_options(model_of(line.shape))
        )
        stub: Any = fleet_pb2_grpc.FleetStub(self._channel)
        self._stream = stub.Probe(metadata=((TOKEN, credentials.shown),))
        self._clock = clock

    async def start(self) -> None:
        """Begin."""

    async def close(self) -> None:
        self._stream.cancel()
        await self._channel.close()


class GrpcBulk(_Call):
    """One transfer over gRPC that sends as much as the link takes.

    Attributes:
        meter: counts the bytes at the receiver.
    """

    def __init__(
        self, line: MeasuredLink, credentials: Credentials, direction: Direction, clock: Clock
    ) -> None:
        super().__init__(line, credentials, clock)
        self._direction = direction
        rate_bps = line.mean_bps(direction)
        size = message_bytes(rate_bps)
        if direction == "up":
            self._message = pb.ProbeMessage(payload=bytes(size))
        else:
            self._message = pb.ProbeMessage(wanted_bytes=size)
        # Towards the server gRPC's flow control is the limit. Replies come only when requested.
        ahead = _AHEAD + math.ceil(2 * line.shape.rtt_s * (rate_bps or 0.0) / 8 / size)
        self._room = asyncio.Semaphore(ahead if direction == "down" else sys.maxsize)
        self._tasks: list[asyncio.Task[None]] = []
        self.meter = RateMeter()

    async def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    async def _write(self) -> None:
        while True:
            await self._room.acquire()
            await self._stream.write(self._message)

    async def _read(self) -> None:
        try:
            while (reply := await self._stream.read()) is not grpc.aio.EOF:
                if self._direction == "up":  # counted by the server, which has the same clock
                    self.meter.add(reply.received - self.meter.received, reply.at)
                else:
                    self.meter.add(len(reply.payload), self._clock.monotonic())
                self._room.release()
        finally:
            self.meter.broken = True

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().close()


class GrpcEcho(_Call):
    """A call of Probe with small messages that the server answers."""

    async def round_trip_s(self, patience_s: float) -> float:
        """Measure the round trip of a small message and its answer, in seconds.

        Raises:
            Interrupted: the answer did not come within `patience_s`, or the call broke.
        """
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(patience_s):
                await self._stream.write(pb.ProbeMessage(payload=bytes(_ECHO_BYTES)))
                reply = await self._stream.read()
        except TimeoutError:
            raise Interrupted(f"no answer within {patience_s:.1f} s") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise Interrupted(f"gRPC: {error}") from None
        if reply is grpc.aio.EOF:
            raise Interrupted("the server ended the call")
        return self._clock.monotonic() - began
