"""The socket on which a running supervisor takes requests of its own user, and its client.

It is a Unix socket beside the credentials in the run folder, which only its user may enter, and
which containers do not see. A connection has one request and one reply, each a JSON object on a
line. If the supervisor dies, nobody answers any more.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from muster.common.clock import Clock
from muster.common.credentials import SECRETS
from muster.common.errors import ConfigError, MusterError, RunFailed, Unreachable
from muster.emulator.run_folder.folder import is_free, is_stack, resume_command, run_folder, shown
from muster.wire.connections.ports import LinePort, Talk, read_line

_NAME = "supervisor.sock"
_MOST_BYTES = 1 << 20
_PATIENCE_S = 60.0
"""Seconds for which a client waits for a reply: what a fault does to programs may take a while."""

_GOODBYE_S = 60.0
_LOOK_S = 0.2
"""Most seconds for which an orderly end of a run is awaited, with its summary and report, and
seconds between two looks."""

Handle = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Handles a request and returns the reply. A MusterError refuses the request."""


class SupervisorSocket:
    """Takes requests while a run goes on."""

    def __init__(self, folder: Path, handle: Handle, clock: Clock) -> None:
        self._secrets = folder / SECRETS
        self._handle, self._clock = handle, clock
        self._port: LinePort | None = None

    async def open(self) -> None:
        """Begin to take requests. On a file system without sockets there is none, and the run goes
        on without."""
        listening = socket.socket(socket.AF_UNIX)
        try:
            with _address(self._secrets) as address, suppress(FileNotFoundError):
                os.unlink(address)  # of a supervisor that was killed; the folder is locked
            with _address(self._secrets) as address:
                listening.bind(address)
                os.chmod(address, 0o600)
        except OSError:
            listening.close()
        else:
            self._port = LinePort(listening, None, self._begin, self._clock)

    async def _begin(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, Talk]:
        """Read the request. Who can connect is the user of the run."""
        if not (line := await read_line(reader, _MOST_BYTES)):
            raise ConnectionResetError("the caller has gone")
        return "the user", partial(self._answer, line, writer)

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(orjson.dumps(await self._reply(line)) + b"\n")
        await writer.drain()

    async def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            return {"done": await self._handle(orjson.loads(line))}
        except orjson.JSONDecodeError as error:
            return {"error": f"expected a JSON object on a line, found {error}"}
        except MusterError as error:
            return {"error": str(error)}

    async def close(self) -> None:
        """Take no more requests. Those that are not answered yet are left unanswered."""
        if self._port is not None:
            self._port.close()
            await self._port.wait_closed()
            with suppress(OSError), _address(self._secrets) as address:
                os.unlink(address)


def ask_supervisor(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the supervisor of the run in a folder, and return what it did.

    Raises:
        ConfigError: there is no run folder, or the supervisor refuses the request.
        Unreachable: no supervisor runs there.
    """
    folder = run_folder(folder)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            with _address(folder / SECRETS) as address:
                connection.connect(address)
            connection.sendall(orjson.dumps(request) + b"\n")
            with connection.makefile("rb") as reply:
                line = reply.readline(_MOST_BYTES)
        except OSError:
            line = b""
    if not line:
        raise Unreachable(_why_nobody(folder))
    answer: dict[str, Any] = orjson.loads(line)
    if answer.get("again"):  # too many connections at the moment
        raise Unreachable(answer["error"])
    if "error" in answer:
        raise ConfigError(answer["error"])
    return dict(answer["done"])


def end_supervisor(folder: Path, clock: Clock) -> None:
    """End the run that a supervisor has under way in a folder, and wait until it has concluded it.
    Does nothing if there is none.

    Raises:
        RunFailed: the supervisor does not end.
    """
    for _ in range(2):  # a second request ends the run at once
        asked, limit = False, clock.monotonic() + _GOODBYE_S
        while clock.monotonic() < limit:
            if is_free(folder):
                return
            with suppress(Unreachable):  # it has only begun, or is about to end
                asked = asked or ask_supervisor(folder, {"stop": {}}) == {}
            clock.pause(_LOOK_S)
    raise RunFailed(
        f"the run in {folder} does not end; another command may be at work in it. "
        f"{folder}/logs/supervisor.log says what its supervisor does"
    )


def _why_nobody(folder: Path) -> str:
    where = shown(folder)
    if is_stack(folder):
        return (
            f"the fleet in {where} runs in a Docker swarm, beside which no supervisor stays that "
            f"could inject and heal faults; use `muster up` without --swarm"
        )
    return (
        f"no `muster run` or `muster up` is under way in {where}, or it does not answer; faults "
        f"can only be injected and healed while a run goes on. `muster status {where}` shows how "
        f"it stands, "
        f"and `{resume_command(Path(where))}` resumes a run that is not complete"
    )


@contextmanager
def _address(secrets: Path) -> Iterator[str]:
    """The address of the socket. Addresses have at most 107 bytes, and paths of folders may have
    more; a file descriptor of the folder stands for its path."""
    descriptor = os.open(secrets, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_NAME}"
    finally:
        os.close(descriptor)
