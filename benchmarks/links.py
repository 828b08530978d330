"""The rates, delays and shares that gateways deliver over real sockets, and the gateways' cost.

python benchmarks/links.py                  # all cases: a table, benchmarks/out/links.json
python benchmarks/links.py rate many        # the cases whose name contains one of these words

The gateway is a separate process. This process plays the devices and the server; for the unshaped
link, two other processes do. Other work on the machine affects the results.
"""

import argparse
import asyncio
import json
import math
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from processes import cpu_s

from muster.common.clock import WallClock
from muster.common.credentials import write_credentials
from muster.common.shared_lines import SharedLine
from muster.common.testing import made_credentials
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.link_control.controller import Controller
from muster.emulator.links.shape import Shape

HERE = Path(__file__).parent
HOST = "127.0.0.1"
SUPERVISOR = made_credentials("supervisor")
CLOCK = WallClock()

RATES_MBIT = [0.25, 1, 5, 20, 100, 200]
RTTS_MS = [5, 20, 70, 300, 600]
SECONDS = 5.0
BUFFERS = 4 * 64 * 1024
CHUNK = bytes(256 * 1024)

Result = dict[str, Any]


@dataclass
class Testbed:
    """A running gateway, and the listening socket of the server behind it."""

    ports: Ports
    process: subprocess.Popen[bytes]
    listener: socket.socket

    async def pair(self, client: str = "d0") -> tuple[socket.socket, socket.socket]:
        """Connect a device. Return its socket and the server's end of the connection."""
        loop = asyncio.get_running_loop()
        device = socket.socket()
        device.setblocking(False)
        device.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(device, (HOST, self.ports.devices[client]))
        server, _ = await loop.sock_accept(self.listener)
        server.setblocking(False)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return device, server

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)


@asynccontextmanager
async def start_testbed(shape: Shape, devices: int = 1, **shared: float) -> AsyncIterator[Testbed]:
    listener = socket.create_server((HOST, 0), backlog=2000)
    listener.setblocking(False)
    with tempfile.TemporaryDirectory() as folder:
        ready, credentials = Path(folder) / "ready.json", Path(folder) / "credentials.json"
        write_credentials(credentials, made_credentials("gateway/bench", [SUPERVISOR]))
        config = GatewayProcess(
            group="bench",
            seed=7,
            devices=[GatewayDevice(client=f"d{i}", shape=shape) for i in range(devices)],
            shared=SharedLine(**shared),  # type: ignore[arg-type]
            upstream=f"{HOST}:{listener.getsockname()[1]}",
            ready=str(ready),
            credentials=str(credentials),
        )
        program = [sys.executable, "-m", "muster.emulator.gateway"]
        process = subprocess.Popen(program, stdin=subprocess.PIPE)  # noqa: ASYNC220
        assert process.stdin is not None
        process.stdin.write(config.to_json().encode() + b"\n")
        process.stdin.close()
        while not ready.exists():
            assert process.poll() is None
            await CLOCK.sleep_until(CLOCK.monotonic() + 0.01)
        try:
            yield Testbed(Ports.from_json(ready.read_bytes()), process, listener)
        finally:
            process.terminate()
            process.wait()
            listener.close()


async def send_forever(connection: socket.socket) -> None:
    """Send until the task is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await loop.sock_sendall(connection, CHUNK)


async def receive(sock: socket.socket, nbytes: float, seconds: float = 0.0) -> tuple[int, float]:
    """Receive at least `nbytes` for at least `seconds`. Return their number and the time."""
    loop, got, began = asyncio.get_running_loop(), 0, CLOCK.monotonic()
    buffer = bytearray(1 << 18)
    while True:
        got += await loop.sock_recv_into(sock, buffer)
        now = CLOCK.monotonic()
        if got >= nbytes and now - began >= seconds:
            return got, now


async def rate(mbit: float, direction: str) -> Result:
    bps = mbit * 1e6
    shape = Shape(up_bps=bps) if direction == "up" else Shape(down_bps=bps)
    async with start_testbed(shape) as testbed:
        device, server = await testbed.pair()
        sender, receiver = (device, server) if direction == "up" else (server, device)
        sending = asyncio.create_task(send_forever(sender))
        _, began = await receive(receiver, BUFFERS)
        cpu = testbed.cpu_s()
        got, ended = await receive(receiver, 0, SECONDS)
        cpu = testbed.cpu_s() - cpu
        sending.cancel()
        await asyncio.wait([sending])
    found = 8 * got / (ended - began) / 1e6
    return {
        "case": f"rate {direction}",
        "asked": f"{mbit:g} Mbit/s",
        "found": f"{found:.4g} Mbit/s",
        "error_percent": 100 * (found / mbit - 1),
        "goal": "±3 %",
        "note": f"gateway {100 * cpu / (ended - began):.1f} % of a core",
    }


async def echo(device: socket.socket, server: socket.socket, times: int, pause_s: float) -> float:
    """Return the median round-trip time of 100 bytes, in seconds."""
    loop, found = asyncio.get_running_loop(), []
    for _ in range(times):
        await CLOCK.sleep_until(CLOCK.monotonic() + pause_s)
        began = CLOCK.monotonic()
        for one, other in ((device, server), (server, device)):
            await loop.sock_sendall(one, CHUNK[:100])
            await receive(other, 100)
        found.append(CLOCK.monotonic() - began)
    return statistics.median(found)


async def rtt(asked_ms: float) -> Result:
    async with start_testbed(Shape(rtt_s=asked_ms / 1000)) as testbed:
        found = 1000 * await echo(*await testbed.pair(), 20 if asked_ms > 100 else 60, 0.0023)
    return {
        "case": "rtt",
        "asked": f"{asked_ms:g} ms",
        "found": f"{found:.2f} ms",
        "error_percent": 100 * (found / asked_ms - 1),
        "goal": f"±{max(2.0, 0.03 * asked_ms):g} ms",
        "note": f"{found - asked_ms:+.2f} ms",
    }


async def shared() -> Result:
    async with start_testbed(Shape(), devices=10, up_bps=20e6) as testbed:
        pairs = [await testbed.pair(f"d{i}") for i in range(10)]
        sending = [asyncio.create_task(send_forever(device)) for device, _ in pairs]
        await asyncio.gather(*(receive(server, BUFFERS / 4) for _, server in pairs))
        began = CLOCK.monotonic()
        got = await asyncio.gather(*(receive(server, 0, SECONDS) for _, server in pairs))
        for task in sending:
            task.cancel()
        await asyncio.wait(sending)
    rates = [8 * nbytes / (ended - began) / 1e6 for nbytes, ended in got]
    return {
        "case": "shared by 10",
        "asked": "20 Mbit/s",
        "found": f"{sum(rates):.4g} Mbit/s",
        "error_percent": 100 * (sum(rates) / 20 - 1),
        "goal": "±3 %, Jain 0.95",
        "note": f"Jain {jain(rates):.4f}",
    }


async def heartbeat() -> Result:
    async with start_testbed(Shape(up_bps=1e6, rtt_s=0.05), up_bps=2e6) as testbed:
        device, server = await testbed.pair()
        idle = await echo(device, server, 30, 0.1)
        bulk, sink = await testbed.pair()
        sending = asyncio.create_task(send_forever(bulk))
        receiving = asyncio.create_task(receive(sink, math.inf))
        await CLOCK.sleep_until(CLOCK.monotonic() + 2.0)
        busy = await echo(device, server, 30, 0.1)
        for task in (sending, receiving):
            task.cancel()
        await asyncio.wait([sending, receiving])
    return {
        "case": "small message under upload",
        "asked": f"{1000 * idle:.1f} ms idle",
        "found": f"{1000 * busy:.1f} ms",
        "error_percent": 100 * (busy / idle - 1),
        "goal": "+20 ms, a slice",
        "note": f"{1000 * (busy - idle):+.1f} ms",
    }


async def unshaped() -> Result:
    """Measure a link without shaping. The sender and the sink are separate processes."""
    async with start_testbed(Shape()) as testbed:
        port, pipe = testbed.ports.devices["d0"], os.pipe()
        sink = os.fork()
        if not sink:
            _sink(testbed.listener, pipe[1])
        sender = os.fork()
        if not sender:
            _send(port)
        loop = asyncio.get_running_loop()
        cpu = testbed.cpu_s()
        text = await loop.run_in_executor(None, os.read, pipe[0], 100)
        cpu = testbed.cpu_s() - cpu
        for pid in (sink, sender):
            os.waitpid(pid, 0)  # noqa: ASYNC222
    found, seconds = (float(part) for part in text.split())
    return {
        "case": "unshaped",
        "asked": "500 MB/s",
        "found": f"{found:.0f} MB/s",
        "error_percent": 100 * (found / 500 - 1),
        "goal": "more",
        "note": f"gateway {100 * cpu / seconds:.0f} % of a core",
    }


def _sink(listener: socket.socket, output: int) -> None:
    listener.setblocking(True)
    connection, _ = listener.accept()
    connection.setblocking(True)
    buffer, got, began = bytearray(1 << 18), 0, 0.0
    while nbytes := connection.recv_into(buffer):
        began = began or CLOCK.monotonic()
        got += nbytes
    seconds = CLOCK.monotonic() - began
    os.write(output, f"{got / seconds / 1e6} {seconds}".encode())
    os._exit(0)


def _send(port: int) -> None:
    connection = socket.create_connection((HOST, port))
    until = CLOCK.monotonic() + 3
    while CLOCK.monotonic() < until:
        connection.sendall(CHUNK)
    connection.close()
    os._exit(0)


async def many() -> Result:
    """Measure a thousand devices, each with its own link, under one shared rate."""
    devices, each, cap = 1000, 30_000, 40e6
    shape = Shape(up_bps=5e6, down_bps=20e6, rtt_s=0.05, jitter_s=0.01, fading=0.5)
    started = CLOCK.monotonic()
    async with start_testbed(shape, devices=devices, up_bps=cap) as testbed:
        up = CLOCK.monotonic()
        pairs = [await testbed.pair(f"d{i}") for i in range(devices)]
        connected = CLOCK.monotonic()
        loop = asyncio.get_running_loop()
        moving = [
            asyncio.ensure_future(asyncio.gather(
                loop.sock_sendall(device, CHUNK[:each]), receive(server, each)
            ))
            for device, server in pairs
        ]  # fmt: skip
        async with Controller(testbed.ports, SUPERVISOR, CLOCK) as controller:
            total = 0
            while total < devices * each / 2:
                stats = await controller.stats()
                got = [device["up"]["bytes"] for device in stats["devices"].values()]
                total = sum(got)
                await CLOCK.sleep_until(CLOCK.monotonic() + 0.05)
        await asyncio.gather(*moving)
        seconds, peak, cpu = CLOCK.monotonic() - connected, testbed.peak_mib(), testbed.cpu_s()
    ideal = 8 * devices * each / cap
    return {
        "case": f"{devices} devices",
        "asked": f"{ideal:.2f} s",
        "found": f"{seconds:.2f} s",
        "error_percent": 100 * (seconds / ideal - 1),
        "goal": "Jain 0.95",
        "note": f"Jain half-way {jain(got):.4f}; up {up - started:.2f} s, connected "
        f"{connected - up:.2f} s, peak {peak:.0f} MiB, CPU {cpu:.1f} s",
    }


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


CASES: dict[str, Callable[[], Coroutine[Any, Any, Result]]] = {
    **{
        f"rate-{direction}-{mbit}": partial(rate, mbit, direction)
        for direction in ("up", "down")
        for mbit in RATES_MBIT
    },
    **{f"rtt-{ms}": partial(rtt, ms) for ms in RTTS_MS},
    "shared": shared,
    "heartbeat": heartbeat,
    "unshaped": unshaped,
    "many": many,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="run the cases whose names contain one of them")
    parser.add_argument("--out", type=Path, default=HERE / "out/links.json")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = []
    head = ("case", "asked", "found", "error", "goal", "")
    row = "{:<27}{:>14}{:>16}{:>9}  {:<16} {}"
    print(time.strftime("%Y-%m-%d %H:%M"), "load", os.getloadavg(), os.cpu_count(), "cores")
    print(row.format(*head))
    for name, case in CASES.items():
        if options.words and not any(word in name for word in options.words):
            continue
        found = uvloop.run(case())
        found["load"] = os.getloadavg()[0]
        results.append(found)
        error = f"{found['error_percent']:+.2f} %"
        shown = (found[key] for key in ("case", "asked", "found"))
        print(row.format(*shown, error, found["goal"], found["note"]), flush=True)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
