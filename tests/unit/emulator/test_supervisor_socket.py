"""The socket of a supervisor: private, in folders of any length, silent when nobody is there."""

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.network.hostile import hang_up

from muster.common.credentials import SECRETS
from muster.common.errors import ConfigError, Unreachable
from muster.common.testing import ManualClock
from muster.emulator.run_folder.supervisor_socket import SupervisorSocket, ask_supervisor


async def handle(request: Mapping[str, Any]) -> Mapping[str, Any]:
    if "wrong" in request:
        raise ConfigError("expected something else")
    return {"heard": request["say"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / ("long" * 40)
    (path / SECRETS).mkdir(parents=True)
    (path / "scenario.toml").write_text('name = "x"')
    return path


async def ask(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    return await asyncio.to_thread(ask_supervisor, folder, request)


async def test_a_request_gets_its_reply_or_its_refusal(folder: Path) -> None:
    door = SupervisorSocket(folder, handle, ManualClock())
    await door.open()
    assert await ask(folder, {"say": "hello"}) == {"heard": "hello"}
    with pytest.raises(ConfigError, match="expected something else"):
        await ask(folder, {"wrong": 1})
    assert await ask(folder, {"say": "again"}) == {"heard": "again"}
    mode = os.stat(folder / SECRETS / "supervisor.sock").st_mode
    assert stat.S_IMODE(mode) == 0o600
    await door.close()
    assert list((folder / SECRETS).iterdir()) == []


async def test_a_request_that_is_not_json_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = SupervisorSocket(folder, handle, ManualClock())
    await door.open()
    monkeypatch.chdir(folder / SECRETS)  # the whole path may be too long for an address
    reader, writer = await asyncio.open_unix_connection("supervisor.sock")
    writer.write(b"inject\n")
    assert b"expected a JSON object on a line" in await reader.readline()
    writer.close()
    await writer.wait_closed()
    await door.close()


async def test_nobody_answers_before_the_run_after_it_or_for_a_dead_supervisor(
    folder: Path,
) -> None:
    with pytest.raises(Unreachable, match="no `muster run` or `muster up` is under way"):
        await ask(folder, {"say": "hello"})
    door = SupervisorSocket(folder, handle, ManualClock())
    await door.open()
    (folder / SECRETS / "supervisor.sock").rename(folder / "kept")
    await door.close()
    (folder / "kept").rename(folder / SECRETS / "supervisor.sock")  # as after SIGKILL
    with pytest.raises(Unreachable):
        await ask(folder, {"say": "hello"})
    again = SupervisorSocket(folder, handle, ManualClock())
    await again.open()
    assert await ask(folder, {"say": "hello"}) == {"heard": "hello"}
    await again.close()


async def test_a_half_written_request_does_not_outlive_the_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: complaints.append(what))
    door = SupervisorSocket(folder, handle, ManualClock())
    await door.open()
    monkeypatch.chdir(folder / SECRETS)  # the path of the folder is too long for a socket
    reader, writer = await asyncio.open_unix_connection("supervisor.sock")
    assert await ask(folder, {"say": "hello"}) == {"heard": "hello"}
    writer.write(b'{"say": "hel')
    await writer.drain()
    assert await ask(folder, {"say": "hello"}) == {"heard": "hello"}
    await door.close()
    assert await reader.read() == b""
    writer.close()
    assert complaints == []


async def test_a_request_that_never_ends_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    door = SupervisorSocket(folder, handle, clock)
    await door.open()
    monkeypatch.chdir(folder / SECRETS)  # the path of the folder is too long for a socket
    endless, silent = [await asyncio.open_unix_connection("supervisor.sock") for _ in range(2)]
    endless[1].write(b"x" * (2 << 20))
    assert b"expected a line of at most 1048576 bytes" in await endless[0].readline()
    clock.advance(10.0)
    assert b"10 s were not enough" in await silent[0].readline()
    assert await ask(folder, {"say": "hello"}) == {"heard": "hello"}
    for _, writer in (endless, silent):
        await hang_up(writer)
    await door.close()


def test_a_fleet_in_a_swarm_has_no_supervisor(folder: Path) -> None:
    (folder / "docker-compose.yml").write_text("x-swarm: {node: a}\n")
    with pytest.raises(Unreachable, match="runs in a Docker swarm, beside which no supervisor"):
        ask_supervisor(folder, {"heal": {}})


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder"):
        ask_supervisor(tmp_path, {"say": "hello"})
