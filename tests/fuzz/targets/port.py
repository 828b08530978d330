"""Target: the port of a running server. It is there for an honest device after every input."""

import asyncio
import base64
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from tests.fuzz.mutation import message_mutation
from tests.fuzz.scratch import scratch
from tests.fuzz.target import Target
from tests.integration.conftest import FLEET, World, make_world

from muster.chaos.peer import FINGERPRINT
from muster.common.clock import WallClock
from muster.server.rpc.limits import CallLimits
from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc
from muster.wire import PROTOCOL_VERSION, SESSION, TOKEN
from muster.wire.connections.calls import open_blocking_channel

_PATIENCE_S = 30.0

_METHODS = (
    "/muster.v1.Fleet/Enroll",
    "/muster.v1.Fleet/Attend",
    "/muster.v1.Fleet/Fetch",
    "/muster.v1.Fleet/Submit",
    "/muster.v1.Fleet/SubmitSum",
    "/muster.v1.Fleet/Probe",
    "/muster.v1.Operator/Status",
    "/muster.v1.Fleet/Unknown",
)
_RAW = len(_METHODS)
"""The kind of an input whose bytes are sent as they are, and not as the message of a method."""

_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4


class _NoLimits(CallLimits):
    """Lets a process make as many calls as the fuzzer does. The limits have tests of their own."""

    @contextmanager
    def admitted(self, name: str, method: str) -> Iterator[None]:
        yield

    def faulty(self, name: str) -> None:
        pass


class _LiveServer:
    """A server in a thread of its own, and an honest device."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._world = asyncio.run_coroutine_threadsafe(self._made(), self._loop).result()
        self.port = self._world.port
        self._stub = fleet_pb2_grpc.FleetStub(
            open_blocking_channel(f"127.0.0.1:{self.port}", [], None)
        )

    @staticmethod
    async def _made() -> World:
        folder = scratch("server")
        folder.mkdir()
        # The device b never comes, so the run waits.
        return await make_world(folder, stall_s=86400.0, limits=_NoLimits(WallClock()))

    def serve_honestly(self) -> bytes:
        """Enroll the device a, and return its session."""
        request = pb.EnrollRequest(
            protocol_version=PROTOCOL_VERSION,
            devices=[pb.Identity(client="a", examples=10, capacity=1.0)],
            fingerprint=FINGERPRINT,
        )
        reply = self._stub.Enroll(request, metadata=((TOKEN, FLEET.shown),), timeout=_PATIENCE_S)
        assert reply.HasField("enrolled"), reply
        assert self._world.running is not None
        assert not self._world.running.done(), "the run goes on"
        session: bytes = reply.enrolled.session
        return session


@cache
def _live() -> _LiveServer:
    return _LiveServer()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2. https://www.rfc-editor.org/rfc/rfc9113#section-4.1"""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def _header(name: str, value: bytes) -> bytes:
    """A header without compression. https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2"""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value


def _call(method: str, session: bytes, message: bytes) -> bytes:
    """What a device sends that calls a method with one message."""
    headers = b"".join(
        _header(name, value)
        for name, value in (
            (":method", b"POST"),
            (":scheme", b"http"),
            (":path", method.encode()),
            (":authority", b"localhost"),
            ("te", b"trailers"),
            ("content-type", b"application/grpc"),
            (TOKEN, base64.b64encode(FLEET.shown)),
            (SESSION, base64.b64encode(session)),
        )
    )
    data = b"\0" + len(message).to_bytes(4, "big") + message
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
        + _frame(_DATA, _END_STREAM, 1, data)
    )


def _attack(data: bytes) -> None:
    """Send an input and end the connection; then an honest device comes.

    The first byte is the kind: a method whose message the rest is, or the rest as it is.
    """
    live = _live()
    session = live.serve_honestly()
    kind, rest = data[0] % (_RAW + 1) if data else _RAW, data[1:]
    sent = rest if kind == _RAW else _call(_METHODS[kind], session, rest)
    with socket.create_connection(("127.0.0.1", live.port), _PATIENCE_S) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
        except ConnectionError:  # the server has reset it
            pass
    live.serve_honestly()


_KINDS = (
    pb.EnrollRequest,
    pb.DeviceMessage,
    pb.FetchRequest,
    pb.SubmitMessage,
    pb.SumMessage,
    pb.ProbeMessage,
)


def _mutate(data: bytes, draws: random.Random) -> bytes:
    """Change the message, or send it to another method."""
    if not data or draws.random() < 0.1:
        return bytes([draws.randrange(_RAW + 1)]) + data[1:]
    kind = data[0] % (_RAW + 1)
    if kind < len(_KINDS):
        return data[:1] + message_mutation(_KINDS[kind])(data[1:], draws)
    place = draws.randrange(len(data))
    return data[:place] + draws.randbytes(1) + data[place + 1 :]


def _seeds() -> list[bytes]:
    update = pb.Update(client="a", round=1, attempt=1, examples=10, checksum=bytes(16), length=16)
    answer = pb.Answer(client="a", round=1, attempt=1, decision=pb.DECISION_DECLINE)
    requests = (
        pb.EnrollRequest(
            protocol_version=PROTOCOL_VERSION, devices=[pb.Identity(client="b", examples=10)]
        ),
        pb.DeviceMessage(answers=[answer]),
        pb.FetchRequest(version=0, client="a", round=1),
        pb.SubmitMessage(header=pb.SubmitHeader(update=update)),
        pb.SumMessage(header=pb.SumHeader(number=1, length=48, checksum=bytes(16))),
        pb.ProbeMessage(payload=b"x", wanted_bytes=4),
    )
    calls = [bytes([kind]) + request.SerializeToString() for kind, request in enumerate(requests)]
    return [
        *calls,
        bytes([_RAW]) + b"GET / HTTP/1.1\r\n\r\n",
        bytes([_RAW]) + _call(_METHODS[0], bytes(16), b"")[:200],
    ]


TARGETS = (
    Target(
        name="port",
        read=_attack,
        refusals=(),
        verify=lambda found: None,
        seeds=_seeds,
        mutate=_mutate,
    ),
)
