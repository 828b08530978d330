"""The port of the metrics: who may read them, with and without TLS, beside strangers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.integration.network.hostile import STRANGERS, end_of, hang_up, open_files

from muster.common.clock import WallClock
from muster.common.credentials import Credentials, GivenCredentials
from muster.common.errors import ConfigError
from muster.common.events import Received
from muster.common.testing import ManualClock, made_credentials
from muster.emulator.credentials.authority import Authority
from muster.emulator.credentials.issuing import Certifier, drawn_credentials
from muster.server.fleet.devices import EnrolledDevice
from muster.server.metrics.port import MetricsPort
from muster.server.metrics.run_metrics import RunMetrics
from muster.wire.connections.ports import LinePort, PortLimits
from muster.wire.connections.streams import open_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
CLOCK = WallClock()
LIMITS = PortLimits(strangers=4, of_a_caller=2)
PATIENCE_S = 20.0
DEVICE = EnrolledDevice("a-0", "a", 0, 5)


class Site(NamedTuple):
    """A port of metrics, and those who may call the server."""

    port: LinePort
    authority: Authority
    metrics: Credentials
    operator: Credentials
    device: Credentials


@pytest.fixture(params=[True, False], ids=["TLS", "plain text"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    authority = Authority.create("the run's", CLOCK.now(), 3600.0)
    certifier = Certifier(authority, CLOCK) if request.param else None
    names = "metrics", "operator", "device/a-0"
    callers = [drawn_credentials("run", name, certifier) for name in names]
    known = [caller.as_caller() for caller in callers]
    source = GivenCredentials(drawn_credentials("run", "server", certifier, known))
    shown = RunMetrics([DEVICE], CLOCK)
    shown.show(Received(1, "a-0", 1, 100))
    port = await MetricsPort(shown.render, source).listen(HOST, 0, ManualClock(), LIMITS)
    yield Site(port, authority, *callers)
    port.close()
    await port.wait_closed()


async def asked(site: Site, connecting: Credentials, *lines: str) -> str:
    """What the port replies to the lines of a request."""
    reader, writer = await open_stream(HOST, site.port.number, connecting, "server")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    said = await end_of(reader)
    await hang_up(writer)
    return said.decode()


def bearer(credentials: Credentials) -> str:
    return f"Authorization: Bearer {credentials.shown.hex()}"


async def scraped(site: Site) -> str:
    return await asked(site, site.metrics, "GET /metrics HTTP/1.1", bearer(site.metrics))


async def test_prometheus_gets_the_metrics_one_request_after_the_other(site: Site) -> None:
    for _ in range(2 * LIMITS.of_a_caller):
        head, _, body = (await scraped(site)).partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
        assert f"\r\nContent-Length: {len(body)}\r\n" in head
        assert 'muster_updates_received_total{group="a"} 1.0\n' in body


async def test_a_reader_of_open_metrics_gets_them(site: Site) -> None:
    accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    said = await asked(site, site.metrics, "GET /metrics HTTP/1.1", bearer(site.metrics), accept)
    assert "\r\nContent-Type: application/openmetrics-text; version=1.0.0" in said
    assert said.endswith("# EOF\n")


async def test_nobody_else_reads_the_metrics(site: Site) -> None:
    get = "GET /metrics HTTP/1.1"
    nothing = await asked(site, site.metrics, get)
    assert nothing.startswith("HTTP/1.1 401 ")
    stranger = made_credentials("metrics", byte=9)
    other = await asked(site, site.metrics, get, bearer(stranger))
    assert other.startswith("HTTP/1.1 401 ")
    for caller in (site.operator, site.device):
        known = await asked(site, caller, get, bearer(caller))
        assert known.startswith("HTTP/1.1 403 ")
        assert known.endswith(f"{caller.name} may not read the metrics\n")
    assert "muster_round" not in nothing + other + known


async def test_a_stolen_token_is_worth_nothing_without_the_certificate(site: Site) -> None:
    said = await asked(site, site.device, "GET /metrics HTTP/1.1", bearer(site.metrics))
    with_tls = site.metrics.tls is not None
    assert said.startswith("HTTP/1.1 401 " if with_tls else "HTTP/1.1 200 ")


async def test_headers_without_end_are_refused(site: Site) -> None:
    many = [f"X-{number}: {'x' * 100}" for number in range(1_000)]
    said = await asked(site, site.metrics, "GET /metrics HTTP/1.1", *many)
    # A port that closes while more arrives may reset the connection before the reply is read.
    assert said == "" or said.startswith("HTTP/1.1 400 ")


@pytest.mark.parametrize("kind", STRANGERS)
async def test_no_stranger_keeps_prometheus_out(site: Site, kind: str) -> None:
    before = open_files()
    strangers = [
        await asyncio.open_connection(HOST, site.port.number) for _ in range(LIMITS.strangers)
    ]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(STRANGERS[kind](each) for each in strangers))
        assert (await scraped(site)).startswith("HTTP/1.1 200 ")
    assert open_files() <= before + 2 * len(strangers) + 4
    for _, writer in strangers:
        await hang_up(writer)


async def test_the_event_loop_goes_on_while_metrics_are_rendered() -> None:
    """The renderer waits for the event loop, so it could never end on its thread."""
    loop, metrics = asyncio.get_running_loop(), made_credentials("metrics", byte=1)
    went_on = threading.Event()

    def render(accept: str) -> tuple[str, bytes]:
        loop.call_soon_threadsafe(went_on.set)
        assert went_on.wait(PATIENCE_S)
        return "text/plain", b"rendered\n"

    source = GivenCredentials(made_credentials("server", [metrics]))
    port = await MetricsPort(render, source).listen(HOST, 0, ManualClock())
    reader, writer = await asyncio.open_connection(HOST, port.number)
    writer.write(f"GET /metrics HTTP/1.1\r\n{bearer(metrics)}\r\n\r\n".encode())
    assert (await end_of(reader)).endswith(b"\r\n\r\nrendered\n")
    await hang_up(writer)
    port.close()
    await port.wait_closed()


async def test_without_tls_metrics_are_on_the_loopback_address_only() -> None:
    port = MetricsPort(lambda accept: ("", b""), GivenCredentials(made_credentials("server")))
    with pytest.raises(ConfigError, match="without TLS, a port is opened on the loopback address"):
        await port.listen("0.0.0.0", 0, CLOCK)
