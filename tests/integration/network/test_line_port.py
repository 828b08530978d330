"""The limits of a port: strangers come and go, and callers are served."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
import uvloop
from tests.integration.network.hostile import (
    STRANGERS,
    Streams,
    end_of,
    open_files,
    silent,
    slow,
)

from muster.common.clock import WallClock
from muster.common.credentials import Credentials, GivenCredentials
from muster.common.errors import Unauthenticated
from muster.common.testing import ManualClock, made_credentials
from muster.emulator.credentials.authority import Authority
from muster.wire.connections.ports import LinePort, PortLimits, Talk, listen, read_line
from muster.wire.connections.streams import open_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

HOST = "127.0.0.1"
LIMITS = PortLimits(strangers=4, of_a_caller=2, patience_s=10.0)
PORT, CALLER = made_credentials("gateway/phones"), made_credentials("device/a")
PATIENCE_S = 20.0


class Site:
    """A port whose callers show their name in a line and then get their lines back."""

    def __init__(self, tls: bool) -> None:
        self.clock = ManualClock()
        self.port_has, self.caller_has = PORT, CALLER
        if tls:
            authority = Authority.create("x", WallClock().now(), 3600.0)
            self.port_has = certified(authority, PORT)
            self.caller_has = certified(authority, CALLER)
        self.port: LinePort
        self.opened: list[asyncio.StreamWriter] = []

    async def listen(self) -> None:
        source = GivenCredentials(self.port_has)
        self.port = await listen(self._recognise, HOST, 0, source, self.clock, LIMITS)

    async def _recognise(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, Talk]:
        name = (await read_line(reader, 100)).decode(errors="replace").strip()
        if not name.startswith("caller"):
            raise Unauthenticated(f"nobody is called {name[:20]!r}")

        async def talk() -> None:
            while line := await read_line(reader, 100):
                writer.write(line)
                await writer.drain()

        return name, talk

    async def stranger(self) -> Streams:
        """Connect without TLS."""
        streams = await asyncio.open_connection(HOST, self.port.number)
        self.opened.append(streams[1])
        return streams

    async def call(self, name: str = "caller") -> Streams:
        """Connect as a caller that is welcome."""
        streams = await open_stream(HOST, self.port.number, self.caller_has, PORT.name)
        self.opened.append(streams[1])
        streams[1].write(f"{name}\n".encode())
        return streams

    async def close(self) -> None:
        for writer in self.opened:
            writer.transport.abort()
        self.port.close()
        await self.port.wait_closed()


def certified(authority: Authority, credentials: Credentials) -> Credentials:
    tls = authority.certify("run", credentials.name, WallClock().now(), 3600.0)
    return credentials.model_copy(update={"tls": tls})


@pytest.fixture(params=[True, False], ids=["TLS", "plain text"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    site = Site(request.param)
    await site.listen()
    async with asyncio.timeout(PATIENCE_S):
        yield site
    await site.close()


async def echo(streams: Streams, line: bytes = b"hello\n") -> None:
    """Prove that the port serves a caller."""
    streams[1].write(line)
    assert await streams[0].readline() == line


plain_text = pytest.mark.parametrize("site", [False], indirect=True, ids=["plain text"])


@pytest.mark.parametrize("kind", STRANGERS)
async def test_a_caller_is_served_among_strangers_of_any_kind(site: Site, kind: str) -> None:
    known, before = await site.call(), open_files()
    await echo(known)
    for _ in range(10):
        strangers = [await site.stranger() for _ in range(LIMITS.strangers)]
        await asyncio.gather(*(STRANGERS[kind](each) for each in strangers))
        await echo(known)
        another = await site.call("caller 2")
        await echo(another)
        another[1].transport.abort()
        for _, writer in strangers:
            writer.transport.abort()
        # Both ends of the strangers and of callers are in this process.
        assert open_files() <= before + 2 * (2 * LIMITS.strangers + 4)
    await until(lambda: open_files() <= before)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_the_stranger_that_came_first_gives_way(site: Site) -> None:
    strangers = [await site.stranger() for _ in range(LIMITS.strangers)]
    await echo(await site.call())
    said = await end_of(strangers[0][0])
    if site.port_has.tls is None:
        assert b"more than 4 connections whose callers are not known" in said
    site.clock.advance(LIMITS.patience_s)
    for reader, _ in strangers[1:]:
        await end_of(reader)


@pytest.mark.parametrize("kind", [silent, slow])
async def test_a_stranger_has_limited_time_however_it_spends_it(
    site: Site, kind: Callable[[Streams], Awaitable[None]]
) -> None:
    stranger = await site.stranger()
    await kind(stranger)
    await echo(await site.call())  # so the port has accepted the stranger
    site.clock.advance(LIMITS.patience_s - 1.0)
    await echo(await site.call())
    assert not stranger[0].at_eof()
    site.clock.advance(1.0)
    said = await end_of(stranger[0])
    if site.port_has.tls is None:
        assert json.loads(said) == {
            "error": "10 s were not enough to learn who calls",
            "again": True,
        }


async def test_a_caller_may_be_silent_for_as_long_as_it_likes(site: Site) -> None:
    known = await site.call()
    await echo(known)
    site.clock.advance(100 * LIMITS.patience_s)
    await echo(known)


async def test_a_caller_has_so_many_connections_and_no_more(site: Site) -> None:
    first, second = [await site.call() for _ in range(2)]
    await echo(first)
    await echo(second)
    third = await site.call()
    assert b"caller has 2 connections, and may have no more" in await third[0].readline()
    await end_of(third[0])
    await echo(await site.call("caller 2"))
    first[1].transport.abort()
    while True:  # the port notices that the first has gone
        again = await site.call()
        again[1].write(b"hello\n")
        if await again[0].readline() == b"hello\n":
            break
    await echo(second)


@plain_text
async def test_a_line_that_is_too_long_is_not_read_to_its_end(site: Site) -> None:
    reader, writer = await site.call("caller" + "x" * 200)
    assert json.loads(await reader.readline()) == {"error": "expected a line of at most 100 bytes"}
    await end_of(reader)
    known = await site.call()
    await echo(known, b"x" * 99 + b"\n")
    known[1].write(b"x" * 100 + b"\n")
    assert b"expected a line of at most 100 bytes" in await known[0].readline()
    writer.close()


@plain_text
async def test_long_lines_are_read_in_whole_and_in_order(site: Site) -> None:
    """Longer than the buffer of a connection, and several at once."""
    reader = asyncio.StreamReader(limit=64)
    lines = [b"x" * nbytes + b"\n" for nbytes in (0, 62, 63, 64, 65, 128, 129, 1000)]
    for line in lines:
        reader.feed_data(line)
    reader.feed_data(b"half")
    reader.feed_eof()
    assert [await read_line(reader, 1001) for _ in lines] == lines
    with pytest.raises(ConnectionResetError):
        await read_line(reader, 1001)
    assert await read_line(reader, 1001) == b""


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain text"])
def test_nothing_is_left_open_on_the_loop_of_the_programs(tls: bool) -> None:
    """Gateways run on uvloop, whose transports close in another way."""

    async def flood() -> None:
        site = Site(tls)
        await site.listen()
        known = await site.call()
        await echo(known)
        before = open_files()
        for _ in range(50):
            for attack in STRANGERS.values():
                await attack(await site.stranger())
            await echo(known)
        for writer in site.opened[1:]:
            writer.transport.abort()
        site.clock.advance(LIMITS.patience_s)
        await until(lambda: open_files() <= before)
        await echo(known)
        await site.close()

    uvloop.run(asyncio.wait_for(flood(), PATIENCE_S))


@plain_text
async def test_strangers_do_not_fill_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        stranger = await site.stranger()
        stranger[1].write(b"nobody\n")
        assert b"nobody is called" in await end_of(stranger[0])
    assert caplog.messages == ["a connection is refused: nobody is called 'nobody'"]
