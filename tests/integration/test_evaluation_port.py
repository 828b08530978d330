"""The port of an evaluation in a container: the server is served at once, whoever else is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import cast

import pytest
from tests.integration.network.hostile import STRANGERS, end_of, hang_up, open_files

from muster.common.clock import WallClock
from muster.common.credentials import EVALUATION, SERVER, Credentials, GivenCredentials
from muster.common.errors import ConfigError
from muster.common.testing import ManualClock, made_credentials
from muster.emulator.credentials.authority import Authority
from muster.server.evaluation.evaluator import RemoteEvaluation
from muster.server.evaluation.port import EvaluationPort, ServerConnection
from muster.wire.connections.ports import PortLimits
from muster.wire.connections.streams import open_stream

HOST = "127.0.0.1"
LIMITS = PortLimits(strangers=4, of_a_caller=3)
CLOCK = WallClock()
PATIENCE_S = 20.0


def certified(authority: Authority, name: str, run: str = "run") -> Credentials:
    tls = authority.certify(run, name, CLOCK.now(), 3600.0)
    return made_credentials(name).model_copy(update={"tls": tls})


@pytest.fixture
def authority() -> Authority:
    return Authority.create("the run's", CLOCK.now(), 3600.0)


def answer(server: ServerConnection) -> None:
    """Do as the evaluation does: a line, then bodies, each with a line as its answer."""
    setup = server.readline()
    while (line := server.readline()).endswith(b"\n"):
        body = server.read(int(line))
        server.write(setup.strip() + b": %d of %d\n" % (body.count(b"x"), len(body)))
        server.flush()


@pytest.fixture
def port(authority: Authority) -> Iterator[EvaluationPort]:
    """A port whose clock stands still: nobody is dropped because time passes."""
    source = GivenCredentials(certified(authority, EVALUATION))
    port = EvaluationPort(HOST, 0, source, ManualClock(), LIMITS)
    threading.Thread(target=port.serve, args=[answer], daemon=True).start()
    yield port
    port.close()


def server_of(port: EvaluationPort, authority: Authority) -> RemoteEvaluation:
    return RemoteEvaluation(f"{HOST}:{port.number}", certified(authority, SERVER), CLOCK)


async def measured(port: EvaluationPort, authority: Authority, body: bytes) -> bytes:
    """Connect as the server, and let a body be measured."""
    evaluation = server_of(port, authority)
    reader, writer = await evaluation.open()
    writer.write(b"setup\n%d\n" % len(body))
    writer.write(body)
    line = await reader.readline()
    await hang_up(cast("asyncio.StreamWriter", writer))
    return line


@pytest.mark.parametrize("kind", STRANGERS)
async def test_no_stranger_delays_the_server(
    port: EvaluationPort, authority: Authority, kind: str
) -> None:
    before = open_files()
    strangers = [await asyncio.open_connection(HOST, port.number) for _ in range(LIMITS.strangers)]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(STRANGERS[kind](each) for each in strangers))
        assert await measured(port, authority, b"xyz" * 1_000_000) == (
            b"setup: 1000000 of 3000000\n"
        )
        assert open_files() <= before + 2 * len(strangers) + 4
    for _, writer in strangers:
        await hang_up(writer)


async def test_one_server_comes_after_the_other(port: EvaluationPort, authority: Authority) -> None:
    for body in (b"", b"x", b"xx" * 100_000):
        line = await measured(port, authority, body)
        assert line == b"setup: %d of %d\n" % (len(body), len(body))


async def refusal(port: EvaluationPort, credentials: Credentials) -> bytes:
    """What the port says to a caller before it ends the connection."""
    reader, writer = await open_stream(HOST, port.number, credentials, EVALUATION)
    said = await end_of(reader)
    await hang_up(writer)
    return said


@pytest.mark.parametrize("name", ["device/a", "operator"])
async def test_nobody_else_of_the_run_is_served(
    port: EvaluationPort, authority: Authority, name: str
) -> None:
    said = await refusal(port, certified(authority, name))
    assert b"expected the certificate of server of this run" in said


async def test_the_server_of_another_run_is_not_served(
    port: EvaluationPort, authority: Authority
) -> None:
    said = await refusal(port, certified(authority, SERVER, run="other"))
    assert b"found that of another run" in said


def test_without_tls_there_is_no_port() -> None:
    with pytest.raises(ConfigError, match="recognises the server by its certificate"):
        EvaluationPort(HOST, 0, GivenCredentials(made_credentials(EVALUATION)), CLOCK)
