"""The gateway's program."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.network.conftest import GATEWAY
from tests.integration.network.link_fleet import CONTROLLER

from muster.common.clock import WallClock
from muster.common.credentials import write_credentials
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.link_control.controller import Controller
from muster.emulator.links.shape import Shape

TAKEN = Ports(host="127.0.0.1", control=0, devices={"a": 1, "b": 1})
"""Only one of the devices can have this port."""

PROGRAM = (sys.executable, "-m", "muster.emulator.gateway")


def config(ready: Path, **settings: Any) -> GatewayProcess:
    credentials = ready.parent / "credentials.json"
    write_credentials(credentials, GATEWAY)
    values: dict[str, Any] = {
        "group": "phones",
        "seed": 7,
        "devices": [GatewayDevice(client="a"), GatewayDevice(client="b")],
        "upstream": "127.0.0.1:9",
        "ready": str(ready),
        "credentials": str(credentials),
        **settings,
    }
    return GatewayProcess(**values)


@pytest.mark.system
async def test_it_says_where_it_listens_and_ends_when_told(tmp_path: Path) -> None:
    server_side: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_side.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(arrived, "127.0.0.1", 0)
    upstream = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    ready, clock = tmp_path / "ready.json", WallClock()
    pipe = asyncio.subprocess.PIPE
    gateway = await asyncio.create_subprocess_exec(*PROGRAM, stdin=pipe, stderr=pipe)
    assert gateway.stdin is not None
    gateway.stdin.write(config(ready, upstream=upstream).to_json().encode() + b"\n")
    gateway.stdin.close()
    while not ready.exists():
        assert gateway.returncode is None
        await clock.sleep_until(clock.monotonic() + 0.01)
    ports = Ports.from_json(ready.read_bytes())
    assert set(ports.devices) == {"a", "b"}
    async with Controller(ports, CONTROLLER, clock) as controller:
        reader, writer = await asyncio.open_connection(ports.host, ports.devices["a"])
        writer.write(b"hello")
        writer.write_eof()
        assert await server_side == b"hello"
        assert await reader.read() == b""
        writer.close()
        assert (await controller.stats())["devices"]["a"]["up"]["bytes"] == 5
        gateway.terminate()
        _, told = await gateway.communicate()
    assert gateway.returncode == 0
    assert told == b""
    server.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"host": "192.0.2.1"}, "without TLS, a port is opened on the loopback address only"),
        ({"host": "127.0.0.1", "again": TAKEN}, "cannot open 3 ports on 127.0.0.1"),
        ({"upstream": "nowhere"}, "expected host:port of the server"),
        (
            {"devices": [GatewayDevice(client="a", shape=Shape(trace_up="/nowhere"))]},
            "/nowhere cannot be read",
        ),
    ],
)
@pytest.mark.system
def test_what_it_cannot_be_it_says(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    ready = tmp_path / "ready.json"
    ended = subprocess.run(
        PROGRAM, input=config(ready, **settings).to_json() + "\n", capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not ready.exists()


@pytest.mark.system
def test_it_imports_nothing_slow() -> None:
    program = (
        "import sys, muster.emulator.gateway.__main__;"
        "print(sys.modules.keys() & {'torch', 'grpc', 'pandas', 'scipy', 'matplotlib'})"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == "set()\n"
