"""The control port of a gateway: who may send which request, with and without TLS."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest
from tests.integration.network.hostile import STRANGERS, hang_up, open_files

from muster.client.connection.slots import SlotClient, SlotsPort
from muster.common.clock import WallClock
from muster.common.credentials import Credentials, GivenCredentials, TlsIdentity
from muster.common.errors import ConfigError, Interrupted, Unauthenticated, Unreachable
from muster.common.exchange import Call, Key
from muster.common.shared_lines import SharedLine
from muster.common.testing import ManualClock
from muster.emulator.credentials.authority import Authority
from muster.emulator.credentials.issuing import Certifier, drawn_credentials
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.gateway.control import ControlService
from muster.emulator.gateway.gateway import Gateway
from muster.emulator.link_control.controller import Controller
from muster.wire.connections.encryption import require_encrypted
from muster.wire.connections.ports import PortLimits
from muster.wire.connections.streams import connect_blocking, open_stream

HOST = "127.0.0.1"
HOUR_S = 3600.0
PATIENCE_S = 10.0
CLOCK = WallClock()


class Replaced:
    """Credentials that a test replaces."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def current(self) -> Credentials:
        return self._credentials

    def replace(self, credentials: Credentials) -> None:
        self._credentials = credentials


class ImpatientClock(ManualClock):
    """A clock that moves on as soon as somebody sleeps."""

    async def sleep_until(self, instant: float) -> None:
        self.advance(instant - self.monotonic())


class Site(NamedTuple):
    """A gateway of the devices a and b with two slots, and those who may call it."""

    ports: Ports
    gateway: Replaced
    authority: Authority
    supervisor: Credentials
    a: Credentials
    b: Credentials

    def certified(
        self, of: Credentials, name: str, run: str = "run", begins_s: float = 0.0
    ) -> Credentials:
        """These credentials with another certificate, valid for an hour from `begins_s` seconds
        after now."""
        tls = self.authority.certify(run, name, CLOCK.now() + begins_s, HOUR_S)
        return of.model_copy(update={"tls": tls})


@pytest.fixture(params=[True, False], ids=["TLS", "plain text"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    authority = Authority.create("the run's", CLOCK.now(), 24 * HOUR_S)
    certifier = Certifier(authority, CLOCK) if request.param else None
    names = "supervisor", "device/a", "device/b"
    supervisor, a, b = (drawn_credentials("run", name, certifier) for name in names)
    callers = [supervisor.as_caller(), a.as_caller("a"), b.as_caller("b")]
    config = GatewayProcess(
        group="phones",
        seed=7,
        devices=[GatewayDevice(client=each) for each in "ab"],
        shared=SharedLine(slots=2),
        upstream="127.0.0.1:9",
        credentials="",
    )
    gateway = Gateway(config, CLOCK)
    known = Replaced(drawn_credentials("run", "gateway/phones", certifier, callers))
    server = await ControlService(gateway, CLOCK, known).listen()
    port = server.number
    yield Site(Ports(host=HOST, control=port, devices={}), known, authority, supervisor, a, b)
    server.close()
    gateway.close()


def connect(site: Site, credentials: Credentials, gateway: str = "gateway/phones") -> Controller:
    return Controller(site.ports, credentials, CLOCK, gateway=gateway)


async def test_the_supervisor_controls_the_gateway(site: Site) -> None:
    async with connect(site, site.supervisor) as controller:
        assert await controller.ping() == 10.0


async def test_a_device_does_not_control_it(site: Site) -> None:
    with pytest.raises(Unauthenticated, match="do: expected one of contend"):
        await connect(site, site.a).open()


async def test_a_gateway_that_does_not_answer_a_handshake_is_given_up_in_time(site: Site) -> None:
    """With or without TLS: the patience holds for the connection as for every request."""
    held = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    server = await asyncio.start_server(say_nothing, HOST, 0)
    ports = Ports(host=HOST, control=server.sockets[0].getsockname()[1], devices={})
    controller = Controller(ports, site.supervisor, CLOCK, 0.05, "gateway/phones")
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(Interrupted, match=r"did not reply for 0\.05 s"):
            await controller.open()
    held.set()
    server.close()


async def test_the_operator_prometheus_and_strangers_are_not_heard(site: Site) -> None:
    tls = site.supervisor.tls is not None
    operator, metrics = (drawn_credentials("run", name, None) for name in ("operator", "metrics"))
    stranger = site.supervisor.model_copy(update={"token": operator.token})
    for caller in (operator, metrics, stranger):
        certified = site.certified(caller, caller.name) if tls else caller
        with pytest.raises(Unauthenticated, match=f"the token that '{caller.name}' shows is not"):
            await connect(site, certified).open()


async def test_the_supervisor_gets_no_slots(site: Site) -> None:
    reply = await asked(site, site.supervisor, do="take", client="a", round=1)
    assert reply["error"].startswith("do: expected one of ")


@pytest.mark.parametrize("site", [True], indirect=True, ids=["TLS"])
async def test_another_devices_token_gets_no_slots(site: Site) -> None:
    stolen = site.certified(site.a, "device/b")
    reader, writer = await open_stream(HOST, site.ports.control, stolen, "gateway/phones")
    writer.write(json.dumps({"token": stolen.shown.hex()}).encode() + b"\n")
    reply = json.loads(await reader.readline())
    assert reply["error"].startswith("expected the certificate of device/a of this run, found ")
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("site", [True], indirect=True, ids=["TLS"])
async def test_the_supervisors_token_is_worth_nothing_with_another_certificate(site: Site) -> None:
    for stolen in (
        site.certified(site.supervisor, "device/a"),
        site.certified(site.supervisor, "supervisor", run="other"),
    ):
        with pytest.raises(Unauthenticated, match="expected the certificate of supervisor"):
            await connect(site, stolen).open()


@pytest.mark.parametrize("site", [True], indirect=True, ids=["TLS"])
async def test_a_supervisor_notices_that_a_gateway_is_another(site: Site) -> None:
    with pytest.raises(Unauthenticated, match="expected the certificate of gateway/laptops"):
        await connect(site, site.supervisor, "gateway/laptops").open()


def other_sort(tls: TlsIdentity | None) -> TlsIdentity | None:
    """A certificate of another authority, or plain text where the gateway has TLS; the other way
    around where it has none."""
    if tls is not None:
        return None
    return Authority.create("x", CLOCK.now(), HOUR_S).certify(
        "run", "supervisor", CLOCK.now(), HOUR_S
    )


UNFIT: dict[str, Callable[[Site], Credentials]] = {
    "TLS and plain text": lambda site: site.supervisor.model_copy(
        update={"tls": other_sort(site.supervisor.tls)}
    ),
    "another authority": lambda site: site.supervisor.model_copy(update={"tls": other_sort(None)}),
}


UNUSABLE: dict[str, Callable[[Site], Credentials]] = {
    "expired": lambda site: site.certified(site.supervisor, "supervisor", begins_s=-2 * HOUR_S),
    "not yet valid": lambda site: site.certified(
        site.supervisor, "supervisor", begins_s=3 * HOUR_S
    ),
    "for servers only": lambda site: site.certified(site.supervisor, "gateway/phones"),
}


@pytest.mark.parametrize("site", [True], indirect=True, ids=["TLS"])
@pytest.mark.parametrize("unfit", UNUSABLE)
async def test_a_certificate_that_no_client_may_use_now_is_refused(site: Site, unfit: str) -> None:
    with pytest.raises((Unreachable, Interrupted)):
        await connect(site, UNUSABLE[unfit](site)).open()


@pytest.mark.parametrize("unfit", UNFIT)
async def test_who_does_not_get_through_the_handshake_is_not_heard(site: Site, unfit: str) -> None:
    with pytest.raises((Unreachable, Interrupted)):
        await connect(site, UNFIT[unfit](site)).open()


async def asked(site: Site, credentials: Credentials, **request: Any) -> dict[str, Any]:
    """The reply of a request for a slot."""
    reader, writer = await open_stream(HOST, site.ports.control, credentials, "gateway/phones")
    for line in ({"token": credentials.shown.hex()}, request):
        writer.write(json.dumps(line).encode() + b"\n")
        reply: dict[str, Any] = json.loads(await reader.readline())
    writer.close()
    return reply


async def test_a_caller_with_too_many_connections_tries_again(site: Site) -> None:
    async def connected(credentials: Credentials) -> asyncio.StreamWriter:
        reader, writer = await open_stream(HOST, site.ports.control, credentials, "gateway/phones")
        writer.write(json.dumps({"token": credentials.shown.hex()}).encode() + b"\n")
        assert b'"ok"' in await reader.readline()
        return writer

    most = PortLimits().of_a_caller
    others = [await connected(each) for each in (site.supervisor, site.a) for _ in range(most)]
    with pytest.raises(Unreachable, match="supervisor has 8 connections, and may have no more"):
        await Controller(
            site.ports, site.supervisor, ImpatientClock(), gateway="gateway/phones"
        ).open()
    port = SlotsPort(address=f"{HOST}:{site.ports.control}", queue=False, gateway="gateway/phones")
    slots = SlotClient(port, GivenCredentials(site.a), CLOCK)
    call = Call(Key("a", 1, 1), 0, 0.0, b"", called_in_group=1)
    contending = asyncio.create_task(slots.contend(call, active=True))
    controller = connect(site, site.supervisor)
    opening = asyncio.create_task(controller.open())
    for writer in others:
        await hang_up(writer)
    async with asyncio.timeout(PATIENCE_S):
        assert await contending
        await opening
    slots.close()
    await controller.close()


@pytest.mark.parametrize("kind", STRANGERS)
async def test_strangers_keep_nobody_from_the_gateway(site: Site, kind: str) -> None:
    """More of them than the port takes, and the supervisor and a device among them."""
    async with asyncio.timeout(3 * PATIENCE_S), connect(site, site.supervisor) as controller:
        strangers = []
        for _ in range(4):
            for _ in range(PortLimits().strangers // 2):
                strangers.append(await asyncio.open_connection(HOST, site.ports.control))
                await STRANGERS[kind](strangers[-1])
            assert await controller.ping() == 10.0
            assert (await asked(site, site.a, do="take", client="a", round=1))["taken"]
            async with connect(site, site.supervisor) as another:
                assert await another.ping() == 10.0
        for _, writer in strangers:
            await hang_up(writer)


@pytest.mark.parametrize("do", ["contend", "take", "give"])
async def test_a_device_asks_for_slots_of_its_own_only(site: Site, do: str) -> None:
    more = {"active": False, "of": 2} if do == "contend" else {}
    reply = await asked(site, site.b, do=do, client="a", round=1, **more)
    assert reply == {"error": "client: device/b asks for its own devices only, found 'a'"}


async def test_devices_get_their_slots_as_the_gateway_grants_them(site: Site) -> None:
    address = f"{HOST}:{site.ports.control}"
    port = SlotsPort(address=address, gateway="gateway/phones", queue=False)
    clients = [SlotClient(port, GivenCredentials(each), CLOCK) for each in (site.a, site.b)]
    calls = [Call(Key(client, 1, 1), 0, 0.0, b"", called_in_group=2) for client in ("a", "b")]
    granted = await asyncio.gather(
        *(each.contend(call, True) for each, call in zip(clients, calls, strict=True))
    )
    assert granted == [True, True]
    for each in clients:
        each.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_port_without_tls_is_on_the_loopback_address_only(host: str) -> None:
    with pytest.raises(ConfigError, match="without TLS, a port is opened on the loopback"):
        require_encrypted(host, None)
    require_encrypted(host, TlsIdentity(certificate="", key="", authority=""))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "[::1]", "localhost"])
def test_the_loopback_address_needs_no_tls(host: str) -> None:
    require_encrypted(host, None)


@pytest.mark.parametrize("site", [True], indirect=True, ids=["TLS"])
async def test_a_gateways_certificate_is_replaced_without_a_restart(site: Site) -> None:
    """The new certificate is another gateway's, so that it can be told from the old one."""
    replaced = site.certified(site.gateway.current(), "gateway/renewed")
    async with connect(site, site.supervisor) as before:
        site.gateway.replace(replaced)
        async with connect(site, site.supervisor, "gateway/renewed") as after:
            assert await after.ping() == await before.ping() == 10.0
    with pytest.raises(Unauthenticated, match="found muster://run/gateway/renewed"):
        await connect(site, site.supervisor).open()


@pytest.mark.parametrize("site", [True], indirect=True, ids=["TLS"])
async def test_a_peer_that_is_gone_before_the_handshake_leaves_nothing_open(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((HOST, 0)) as listening:
        connection = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    reset_at_once = struct.pack("ii", 1, 0)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_at_once)
    accepted.close()
    assert select.select([connection], [], [], PATIENCE_S)[0]  # the reset is here
    monkeypatch.setattr(socket, "create_connection", lambda *_: connection)
    before = open_files()
    with pytest.raises(OSError, match="not connected"):
        connect_blocking(HOST, 1, site.supervisor, "gateway/phones", PATIENCE_S)
    assert open_files() == before - 1
