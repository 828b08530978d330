"""The server's side of rpc Probe: counts the bytes that arrive and sends the bytes asked for."""

from collections.abc import AsyncIterable, AsyncIterator

from muster.common.clock import Clock
from muster.common.errors import RemoteProtocolError
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES

_ZEROS = bytes(CHUNK_BYTES)


async def probe(
    requests: AsyncIterable[pb.ProbeMessage], clock: Clock
) -> AsyncIterator[pb.ProbeReply]:
    """Answer every message of one call of Probe with one reply, in order.

    The server does not read a message before gRPC has taken the reply to the message before it.
    Data that a slow link cannot carry yet therefore waits at the client.

    Raises:
        RemoteProtocolError: a message asks for more than a chunk.
    """
    received = 0
    async for message in requests:
        at = clock.monotonic()
        if message.wanted_bytes > CHUNK_BYTES:
            raise RemoteProtocolError(
                f"expected to be asked for at most {CHUNK_BYTES} bytes at once; found "
                f"{message.wanted_bytes}"
            )
        received += len(message.payload)
        yield pb.ProbeReply(received=received, at=at, payload=_ZEROS[: message.wanted_bytes])
