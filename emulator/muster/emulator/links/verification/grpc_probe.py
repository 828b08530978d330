"""Measures gRPC over a link, with the channel options that devices and server use."""

import asyncio
import logging
import math
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from muster.common.clock import Clock
from muster.common.errors import Interrupted, Unauthenticated
from muster.emulator.gateway.rates import Direction
from muster.emulator.links.model import model_of
from muster.emulator.links.verification.measuring import MeasuredLink
from muster.emulator.links.verification.meter import RateMeter
from muster.server.fleet import same_token
from muster.server.rpc.probe import probe
from muster.server.rpc.service import Context, errors_as_status, metadata
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import TOKEN, UPLOAD_BYTES
from muster.wire.channels import client_options, server_options

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


class ProbeServer:
    """A server that only has the RPC Probe, on a free port of `host`.

    Args:
        token: the fleet's token; calls without it are refused.
        lines: the links of the devices that will call.
    """

    def __init__(
        self,
        token: bytes,
        clock: Clock,
        lines: Iterable[MeasuredLink] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self._token, self._clock, self._host = token, clock, host
        self._server = grpc.aio.server(
            options=server_options(model_of(line.shape) for line in lines)
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._probe, pb.ProbeMessage.FromString, pb.ProbeReply.SerializeToString
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_FLEET, {"Probe": handler}),)
        )

    async def _probe(self, requests: Any, context: Context) -> AsyncIterator[pb.ProbeReply]:
        async with errors_as_status(context, log.exception):
            if not same_token(metadata(context, TOKEN), self._token):
                raise Unauthenticated("the fleet's token is missing or wrong")
            async for reply in probe(requests, self._clock):
                yield reply

    async def start(self) -> str:
        """Listen; return the address, host:port."""
        port = self._server.add_insecure_port(f"{self._host}:0")
        await self._server.start()
        return f"{self._host}:{port}"

    async def close(self) -> None:
        await self._server.stop(None)


class _Call:
    """A call of Probe over a channel of its own, through a device's link.

    Args:
        token: the fleet's token.
    """

    def __init__(self, line: MeasuredLink, token: bytes, clock: Clock) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"{line.host}:{line.port}", options=client_options(model_of(line.shape))
        )
        stub: Any = fleet_pb2_grpc.FleetStub(self._channel)
        self._stream = stub.Probe(metadata=((TOKEN, token),))
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
        self, line: MeasuredLink, token: bytes, direction: Direction, clock: Clock
    ) -> None:
        super().__init__(line, token, clock)
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
