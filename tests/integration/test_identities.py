"""Who may make which call: every call of the schema by every sort of caller, with and without TLS.

A refused caller sends no request, only metadata: that the call ends at all shows that it is refused
before anything of a request is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import numpy as np
import pytest

from muster.chaos.peer import FINGERPRINT
from muster.client.connection.link import ServerLink
from muster.common.clock import WallClock
from muster.common.credentials import (
    Credentials,
    CredentialsFile,
    GivenCredentials,
    TlsIdentity,
    write_credentials,
)
from muster.common.exchange import Answer, Decision, Fingerprint, Identity, Outcome, Update
from muster.common.lines import LinkModel
from muster.emulator.credentials.authority import Authority
from muster.emulator.credentials.issuing import Certifier, drawn_credentials
from muster.v1 import fleet_pb2 as pb
from muster.v1 import operator_pb2, operator_pb2_grpc
from muster.wire import INLINE_BYTES, PROTOCOL_VERSION, SESSION, TOKEN
from muster.wire.bodies import checksum
from muster.wire.channels import client_options
from muster.wire.transport import GrpcTransport

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

PATIENCE_S = 10.0
HOUR_S = 3600.0
CLOCK = WallClock()

OF_FLEET = [f"/muster.v1.Fleet/{m.name}" for m in pb.DESCRIPTOR.services_by_name["Fleet"].methods]
OF_OPERATOR = [
    f"/muster.v1.Operator/{m.name}"
    for m in operator_pb2.DESCRIPTOR.services_by_name["Operator"].methods
]
WITH_TOKEN = ["/muster.v1.Fleet/Enroll", "/muster.v1.Fleet/Probe"]
WITH_SESSION = [method for method in OF_FLEET if method not in WITH_TOKEN]


class Cast(NamedTuple):
    """The programs of a run with TLS: its server, the devices a and b, the operator, and who reads
    the metrics."""

    authority: Authority
    server: Credentials
    a: Credentials
    b: Credentials
    operator: Credentials
    metrics: Credentials

    def certify(self, name: str, run: str = "run", begins_s: float = 0.0) -> TlsIdentity:
        """A certificate that is valid for an hour from `begins_s` seconds after now."""
        return self.authority.certify(run, name, CLOCK.now() + begins_s, HOUR_S)


@pytest.fixture(scope="module")
def cast() -> Cast:
    authority = Authority.create("the run's", CLOCK.now(), 30 * 24 * HOUR_S)
    certifier = Certifier(authority, CLOCK)
    a, b = (drawn_credentials("run", f"device/{each}", certifier) for each in "ab")
    operator, metrics = (drawn_credentials("run", n, certifier) for n in ("operator", "metrics"))
    callers = [a.as_caller("a"), b.as_caller("b"), operator.as_caller(), metrics.as_caller()]
    server = drawn_credentials("run", "server", certifier, callers)
    return Cast(authority, server, a, b, operator, metrics)


def channel_of(w: World, credentials: Credentials | None) -> grpc.aio.Channel:
    source = None if credentials is None else GivenCredentials(credentials)
    channel = GrpcTransport(source).channel(f"127.0.0.1:{w.port}", client_options())
    w.channels.append(channel)
    return channel


async def refusal(channel: grpc.aio.Channel, method: str, *metadata: tuple[str, bytes]) -> str:
    """How a call ends whose caller sends nothing but metadata: its status and its reason."""
    async with asyncio.timeout(PATIENCE_S):
        call: Any = channel.stream_stream(method)(metadata=metadata)
        return f"{(await call.code()).name}: {await call.details()}"


def with_tls(of: Credentials, tls: TlsIdentity | None) -> Credentials:
    """Credentials with another certificate, or without one."""
    return of.model_copy(update={"tls": tls})


NoCertificate = Callable[[Cast], Credentials]

UNFIT: dict[str, NoCertificate] = {
    "plain text": lambda c: with_tls(c.a, None),
    "another authority": lambda c: with_tls(
        c.a, Authority.create("x", CLOCK.now(), HOUR_S).certify("run", c.a.name, CLOCK.now(), 9.0)
    ),
    "a forged authority": lambda c: with_tls(
        c.a,
        Authority.create("x", CLOCK.now(), HOUR_S)
        .certify("run", c.a.name, CLOCK.now(), HOUR_S)
        .model_copy(update={"authority": c.server.tls.authority if c.server.tls else ""}),
    ),
    "expired": lambda c: with_tls(c.a, c.certify(c.a.name, begins_s=-2 * HOUR_S)),
    "not yet valid": lambda c: with_tls(c.a, c.certify(c.a.name, begins_s=2 * HOUR_S)),
    "a gateway's, which is for servers": lambda c: with_tls(c.a, c.certify("gateway/g")),
    "a key of another certificate": lambda c: with_tls(
        c.a, c.certify(c.a.name).model_copy(update={"key": c.b.tls.key if c.b.tls else ""})
    ),
}


@pytest.mark.parametrize("unfit", UNFIT)
async def test_without_a_certificate_of_the_run_no_call_begins(
    world: MakeWorld, cast: Cast, unfit: str
) -> None:
    w = await world(credentials=cast.server)
    channel = channel_of(w, UNFIT[unfit](cast))
    for method in [*OF_FLEET, *OF_OPERATOR]:
        metadata = ((TOKEN, cast.a.shown), (SESSION, bytes(16)))
        assert (await refusal(channel, method, *metadata)).startswith("UNAVAILABLE"), method
    assert [event["event"] for event in w.events] == ["server_started"]


async def test_a_caller_without_any_certificate_is_not_served(world: MakeWorld, cast: Cast) -> None:
    w = await world(credentials=cast.server)
    assert cast.a.tls is not None
    channel = grpc.aio.secure_channel(
        f"127.0.0.1:{w.port}",
        grpc.ssl_channel_credentials(cast.a.tls.authority.encode()),
        options=[("grpc.ssl_target_name_override", "server.run.muster")],
    )
    w.channels.append(channel)
    for method in [*OF_FLEET, *OF_OPERATOR]:
        found = await refusal(channel, method, (TOKEN, cast.a.shown))
        assert found.startswith("UNAVAILABLE"), method


async def test_a_device_does_not_talk_to_a_server_in_plain_text(
    world: MakeWorld, cast: Cast
) -> None:
    w = await world()
    assert (await refusal(channel_of(w, cast.a), WITH_TOKEN[0])).startswith("UNAVAILABLE")


@pytest.mark.parametrize("poser", ["another run's server", "a device", "the operator"])
async def test_a_device_does_not_talk_to_who_is_not_its_server(
    world: MakeWorld, cast: Cast, poser: str
) -> None:
    shown = {
        "another run's server": lambda: cast.certify("server", run="other"),
        "a device": lambda: cast.certify("device/b"),
        "the operator": lambda: cast.certify("operator"),
    }[poser]()
    w = await world(credentials=with_tls(cast.server, shown))
    found = await refusal(channel_of(w, cast.a), WITH_TOKEN[0], (TOKEN, cast.a.shown))
    assert found.startswith("UNAVAILABLE")
    assert [event["event"] for event in w.events] == ["server_started"]


@pytest.mark.parametrize("method", WITH_TOKEN)
async def test_a_stolen_token_is_worth_nothing_without_its_certificate(
    world: MakeWorld, cast: Cast, method: str
) -> None:
    w = await world(credentials=cast.server)
    stolen = (TOKEN, cast.a.shown)
    found = await refusal(channel_of(w, cast.b), method, stolen)
    assert found.startswith("PERMISSION_DENIED: the credentials are those of device/a; ")
    assert found.endswith("the certificate is that of muster://run/device/b")
    other_run = with_tls(cast.a, cast.certify(cast.a.name, run="other"))
    found = await refusal(channel_of(w, other_run), method, stolen)
    assert found.endswith("the certificate is that of another run")
    assert [event["event"] for event in w.events] == ["server_started"]


@pytest.mark.parametrize("method", WITH_SESSION)
async def test_a_stolen_session_is_worth_nothing_without_its_certificate(
    world: MakeWorld, cast: Cast, method: str
) -> None:
    w = await world(credentials=cast.server)
    session = (await enroll(w, cast.a, "a")).enrolled.session
    found = await refusal(channel_of(w, cast.b), method, (SESSION, session))
    assert found.startswith("PERMISSION_DENIED: the credentials are those of device/a; ")
    other_run = with_tls(cast.a, cast.certify(cast.a.name, run="other"))
    found = await refusal(channel_of(w, other_run), method, (SESSION, session))
    assert found.startswith("PERMISSION_DENIED: the credentials are those of device/a; ")


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain text"])
async def test_the_supervisor_is_unknown_to_the_server(
    world: MakeWorld, cast: Cast, tls: bool
) -> None:
    certifier = Certifier(cast.authority, CLOCK) if tls else None
    supervisor = drawn_credentials("run", "supervisor", certifier)
    w = await world(credentials=cast.server if tls else with_tls(cast.server, None))
    for method in [*OF_FLEET, *OF_OPERATOR]:
        found = await refusal(channel_of(w, supervisor), method, (TOKEN, supervisor.shown))
        assert found.startswith("UNAUTHENTICATED: "), method


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain text"])
async def test_only_the_operator_makes_its_calls_and_it_makes_no_others(
    world: MakeWorld, cast: Cast, tls: bool
) -> None:
    def plain_or_not(credentials: Credentials) -> Credentials:
        return credentials if tls else with_tls(credentials, None)

    w = await world(credentials=plain_or_not(cast.server))
    device, operator = plain_or_not(cast.a), plain_or_not(cast.operator)
    for method in OF_OPERATOR:
        found = await refusal(channel_of(w, device), method, (TOKEN, device.shown))
        assert found == "PERMISSION_DENIED: only the operator makes this call; device/a may not"
    for method in WITH_TOKEN:
        found = await refusal(channel_of(w, operator), method, (TOKEN, operator.shown))
        assert found == "PERMISSION_DENIED: only devices make this call; operator is none"
    for method in WITH_SESSION:
        found = await refusal(channel_of(w, operator), method, (TOKEN, operator.shown))
        assert found.startswith("UNAUTHENTICATED: no such session")
    status = await operator_pb2_grpc.OperatorStub(channel_of(w, operator)).Status(
        operator_pb2.StatusRequest(), metadata=((TOKEN, operator.shown),)
    )
    assert status.run == "run"


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain text"])
async def test_who_reads_the_metrics_makes_no_calls(
    world: MakeWorld, cast: Cast, tls: bool
) -> None:
    server, metrics = (
        credentials if tls else with_tls(credentials, None)
        for credentials in (cast.server, cast.metrics)
    )
    w = await world(credentials=server)
    expected = {
        **dict.fromkeys(WITH_TOKEN, "PERMISSION_DENIED: only devices make this call; metrics is"),
        **dict.fromkeys(WITH_SESSION, "UNAUTHENTICATED: no such session"),
        **dict.fromkeys(OF_OPERATOR, "PERMISSION_DENIED: only the operator makes this call"),
    }
    for method, refused in expected.items():
        found = await refusal(channel_of(w, metrics), method, (TOKEN, metrics.shown))
        assert found.startswith(refused), method


@pytest.mark.parametrize("method", [*WITH_TOKEN, *OF_OPERATOR])
@pytest.mark.parametrize(
    "shown",
    [
        b"",
        bytes(16),
        bytes(16) + b"device/a",
        bytes(16) + b"operator",
        bytes(16) + b"\xff\xfe",
        bytes(16) + b"nobody",
    ],
    ids=["nothing", "no name", "a device", "the operator", "not UTF-8", "a stranger"],
)
async def test_a_wrong_token_is_refused_whatever_the_name(
    world: MakeWorld, cast: Cast, method: str, shown: bytes
) -> None:
    w = await world(credentials=with_tls(cast.server, None))
    found = await refusal(channel_of(w, None), method, (TOKEN, shown))
    assert found.startswith("UNAUTHENTICATED: the token that ")
    assert (await refusal(channel_of(w, None), method)).endswith("token and name, found none")


async def enroll(w: World, credentials: Credentials, *clients: str) -> pb.EnrollReply:
    channel = channel_of(w, credentials)
    call = channel.unary_unary(
        WITH_TOKEN[0], pb.EnrollRequest.SerializeToString, pb.EnrollReply.FromString
    )
    request = pb.EnrollRequest(
        protocol_version=PROTOCOL_VERSION,
        devices=[pb.Identity(client=each, examples=10, capacity=1.0) for each in clients],
        fingerprint=FINGERPRINT,
    )
    reply: pb.EnrollReply = await call(request, metadata=((TOKEN, credentials.shown),))
    return reply


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain text"])
async def test_a_device_cannot_enroll_as_another_and_evict_it(
    world: MakeWorld, cast: Cast, tls: bool
) -> None:
    def plain_or_not(credentials: Credentials) -> Credentials:
        return credentials if tls else with_tls(credentials, None)

    w = await world(credentials=plain_or_not(cast.server))
    session = (await enroll(w, plain_or_not(cast.a), "a")).enrolled.session
    for clients in ("a", "ba", "ab"):
        reply = await enroll(w, plain_or_not(cast.b), *clients)
        assert reply.refusal.reason == pb.REASON_UNKNOWN_CLIENT
        assert "device/b may not enroll a" in reply.refusal.detail
    assert w.coordinator.fleet.of_session(session).caller == "device/a"


async def test_a_device_that_enrolls_again_takes_over_and_the_journal_says_so(
    world: MakeWorld, cast: Cast
) -> None:
    plain = with_tls(cast.a, None)
    w = await world(credentials=with_tls(cast.server, None))
    first = (await enroll(w, plain, "a")).enrolled.session
    stream: Any = channel_of(w, plain).stream_stream("/muster.v1.Fleet/Attend")(
        metadata=((SESSION, first),)
    )
    await stream.read()
    second = (await enroll(w, plain, "a")).enrolled.session
    assert second != first
    left = await w.until("left", client="a")
    assert left["why"] == "its device enrolled again"
    async with asyncio.timeout(PATIENCE_S):
        while await stream.read() is not grpc.aio.EOF:
            pass
    found = await refusal(channel_of(w, plain), WITH_SESSION[0], (SESSION, first))
    assert found.startswith("UNAUTHENTICATED: no such session")


async def device(w: World, credentials: Credentials, client: str) -> None:
    """A device that does as it should over TLS: it downloads, and uploads in chunks."""
    link = ServerLink(
        f"127.0.0.1:{w.port}",
        credentials.shown,
        CLOCK,
        LinkModel(),
        GrpcTransport(GivenCredentials(credentials)),
    )
    await link.enroll([Identity(client, 10)], Fingerprint("test", "test", "cpu", 1))
    attendance = link.attend()
    while (message := await attendance.read()).goodbye is None:
        for call in message.calls:
            fetched = await link.fetch(call, w.coordinator.schema.body_bytes)
            assert fetched is not None
            body = np.full(len(fetched[0]) // 4, ord(client), "<f4").tobytes()
            await attendance.answer([(Answer(call.key, Decision.ACCEPT), b"")])
            update = Update(call.key, 10, checksum(body), len(body), 0.0, 0.0, 0.5)
            assert (await link.submit(update, body)).outcome is Outcome.ACCEPTED
    await attendance.leave()
    await link.close()


async def test_a_round_over_mutual_tls_gives_the_mean(world: MakeWorld, cast: Cast) -> None:
    parameters = INLINE_BYTES  # in bytes four times what travels inline
    w = await world(parameters=parameters, credentials=cast.server)
    async with asyncio.TaskGroup() as devices:
        devices.create_task(device(w, cast.a, "a"))
        devices.create_task(device(w, cast.b, "b"))
        assert (await w.finish())[0] == "completed"
    expected = np.full(parameters, (ord("a") + ord("b")) / 2, np.float32)
    np.testing.assert_array_equal(w.coordinator.versions.model, expected)


async def test_certificates_are_replaced_without_a_restart(
    world: MakeWorld, cast: Cast, tmp_path: Path
) -> None:
    """The authority is replaced too, so that the old certificates are refused from then on."""
    path = tmp_path / "server.json"
    write_credentials(path, cast.server)
    w = await world(credentials=CredentialsFile(path))
    before = channel_of(w, cast.operator)
    status = operator_pb2_grpc.OperatorStub(before).Status
    shown = ((TOKEN, cast.operator.shown),)
    assert (await status(operator_pb2.StatusRequest(), metadata=shown)).run == "run"
    other = Certifier(Authority.create("another", CLOCK.now(), HOUR_S), CLOCK)
    write_credentials(path, with_tls(cast.server, other.certify("run", "server")))
    found = await refusal(channel_of(w, cast.operator), OF_OPERATOR[0], *shown)
    assert found.startswith("UNAVAILABLE")
    assert (await status(operator_pb2.StatusRequest(), metadata=shown)).run == "run"
    renewed = with_tls(cast.operator, other.certify("run", "operator"))
    status = operator_pb2_grpc.OperatorStub(channel_of(w, renewed)).Status
    assert (await status(operator_pb2.StatusRequest(), metadata=shown)).run == "run"


async def test_a_server_whose_certificate_has_expired_is_reached_again_when_it_is_renewed(
    world: MakeWorld, cast: Cast, tmp_path: Path
) -> None:
    path, shown = tmp_path / "server.json", ((TOKEN, cast.operator.shown),)
    write_credentials(path, cast.server)
    w = await world(credentials=CredentialsFile(path))
    before = operator_pb2_grpc.OperatorStub(channel_of(w, cast.operator)).Status
    assert (await before(operator_pb2.StatusRequest(), metadata=shown)).run == "run"
    write_credentials(path, with_tls(cast.server, cast.certify("server", begins_s=-2 * HOUR_S)))
    found = await refusal(channel_of(w, cast.operator), OF_OPERATOR[0], *shown)
    assert found.startswith("UNAVAILABLE")
    assert (await before(operator_pb2.StatusRequest(), metadata=shown)).run == "run"
    write_credentials(path, with_tls(cast.server, cast.certify("server")))
    after = operator_pb2_grpc.OperatorStub(channel_of(w, cast.operator)).Status
    assert (await after(operator_pb2.StatusRequest(), metadata=shown)).run == "run"


async def test_a_device_that_is_taken_off_the_list_is_refused_from_then_on(
    world: MakeWorld, cast: Cast, tmp_path: Path
) -> None:
    path, plain = tmp_path / "server.json", with_tls(cast.server, None)
    write_credentials(path, plain)
    w = await world(credentials=CredentialsFile(path))
    device = with_tls(cast.a, None)
    session = (await enroll(w, device, "a")).enrolled.session
    others = [caller for caller in plain.callers if caller.name != "device/a"]
    write_credentials(path, plain.model_copy(update={"callers": others}))
    for method in WITH_TOKEN:
        found = await refusal(channel_of(w, None), method, (TOKEN, device.shown))
        assert found.startswith("UNAUTHENTICATED: the token that 'device/a' shows")
    for method in WITH_SESSION:
        found = await refusal(channel_of(w, None), method, (SESSION, session))
        assert found == "UNAUTHENTICATED: the credentials of device/a have been revoked"
