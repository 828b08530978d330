"""A device's end of a session, whose messages its user writes one by one, right or wrong."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc
import numpy as np

from muster.common.errors import Interrupted
from muster.common.exchange import Fingerprint
from muster.common.tensors import Schema
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import PROTOCOL_VERSION, SESSION, messages
from muster.wire.bodies import checksum
from muster.wire.channels import client_options
from muster.wire.connections import calls

FINGERPRINT = messages.encode_fingerprint(Fingerprint("test", "test", "cpu", 1))


def open_channel(address: str) -> grpc.aio.Channel:
    """A connection to the server at host:port, without TLS, that sends messages of any size."""
    options = {**dict(client_options()), "grpc.max_send_message_length": -1}
    return calls.open_channel(address, list(options.items()), None)


def enroll_request(
    clients: Iterable[str], examples: int = 10, protocol_version: int = PROTOCOL_VERSION
) -> pb.EnrollRequest:
    """A request to enroll devices as one process.

    Args:
        examples: of each device.
    """
    identities = [pb.Identity(client=name, examples=examples, capacity=1.0) for name in clients]
    return pb.EnrollRequest(
        protocol_version=protocol_version, devices=identities, fingerprint=FINGERPRINT
    )


@dataclass
class Peer:
    """The session of one process of devices. It speaks for the device `client`.

    Attributes:
        examples: of the device.
        stream: the stream of the Attend call.
    """

    client: str
    examples: int
    session: bytes
    stub: "fleet_pb2_grpc.FleetAsyncStub"
    stream: grpc.aio.StreamStreamCall[pb.DeviceMessage, pb.ServerMessage]
    schema: Schema

    @classmethod
    async def attend(
        cls,
        client: str,
        enrolled: pb.Enrolled,
        stub: "fleet_pb2_grpc.FleetAsyncStub",
        examples: int = 10,
    ) -> Self:
        """Open the stream of a session, and read the greeting."""
        stream = stub.Attend(metadata=((SESSION, enrolled.session),))
        schema = messages.decode_schema(enrolled.schema)
        peer = cls(client, examples, enrolled.session, stub, stream, schema)
        await peer.read()
        return peer

    @property
    def metadata(self) -> tuple[tuple[str, bytes], ...]:
        """What shows to whom a call belongs."""
        return ((SESSION, self.session),)

    async def read(self) -> pb.ServerMessage:
        """The server's next message.

        Raises:
            Interrupted: the stream has ended.
        """
        message = await self.stream.read()
        if not isinstance(message, pb.ServerMessage):
            raise Interrupted("the stream has ended")
        return message

    async def rest(self) -> None:
        """Read and discard messages until the stream ends."""
        while await self.stream.read() is not grpc.aio.EOF:
            pass

    async def called(self) -> pb.Call:
        """The server's next call."""
        while not (message := await self.read()).calls:
            pass
        return message.calls[0]

    def update(
        self,
        value: float = 1.0,
        round: int = 1,
        attempt: int = 1,
        body: bytes | None = None,
        **changes: Any,
    ) -> tuple[pb.Update, bytes]:
        """Return a valid update and its body. A different `body` or `changes` make it invalid."""
        valid = np.full(self.schema.parameters, value, "<f4").tobytes()
        update = pb.Update(
            client=self.client,
            round=round,
            attempt=attempt,
            examples=self.examples,
            checksum=checksum(valid),
            length=len(valid),
            loss=0.5,
        )
        for name, changed in changes.items():
            setattr(update, name, changed)
        return update, valid if body is None else body

    async def send(
        self, what: tuple[pb.Update, bytes], decision: pb.Decision.ValueType = pb.DECISION_ACCEPT
    ) -> None:
        """Answer a call, with a small update inline."""
        update, body = what
        answer = pb.Answer(
            client=self.client,
            round=update.round,
            attempt=update.attempt,
            decision=decision,
            update=update,
            modelled_s=update.modelled_s,
        )
        await self.stream.write(pb.DeviceMessage(bodies=[body], answers=[answer]))

    async def decline(self, call: pb.Call) -> None:
        """Decline a call."""
        answer = pb.Answer(
            client=self.client,
            round=call.round,
            attempt=call.attempt,
            decision=pb.DECISION_DECLINE,
        )
        await self.stream.write(pb.DeviceMessage(answers=[answer]))

    def upload(
        self, update: pb.Update, chunks: Sequence[bytes]
    ) -> grpc.aio.StreamUnaryCall[pb.SubmitMessage, pb.Receipt]:
        """Begin to send an update with these chunks of its body."""
        parts = [pb.SubmitMessage(header=pb.SubmitHeader(update=update))]
        parts += [pb.SubmitMessage(chunk=chunk) for chunk in chunks]
        return self.stub.Submit(iter(parts), metadata=self.metadata)

    async def receipt(self) -> pb.Receipt:
        """The server's next receipt over the stream."""
        while not (message := await self.read()).receipts:
            pass
        return message.receipts[0]
