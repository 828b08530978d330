"""A gateway in the test's own event loop; the test itself is the server behind it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.integration.network.link_fleet import CONTROLLER, LinkFleet

from muster.common.clock import Clock, WallClock
from muster.common.credentials import GivenCredentials
from muster.common.shared_lines import SharedLine
from muster.common.testing import made_credentials
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.gateway.control import ControlService
from muster.emulator.gateway.gateway import Gateway
from muster.emulator.link_control.controller import Controller
from muster.emulator.links.shape import Shape

HOST = "127.0.0.1"
DEVICE = made_credentials("device/abc", byte=1)
GATEWAY = made_credentials("gateway/phones", [CONTROLLER, DEVICE], "abc", byte=2)


@dataclass
class End:
    """One end of a TCP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, nbytes: int) -> bytes:
        return await self.reader.readexactly(nbytes)

    async def fate(self) -> str:
        """Return how the connection ends for this side: "end" (FIN) or "reset" (RST)."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionResetError:
            return "reset"
        return "end"

    def abort(self) -> None:
        """Reset the connection."""
        if not self.writer.is_closing():
            linger = struct.pack("ii", 1, 0)
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


@dataclass
class World:
    """A running gateway, and the connections on both of its sides."""

    gateway: Gateway
    ports: Ports
    accepted: "asyncio.Queue[End]"
    clock: Clock
    ends: list[End] = field(default_factory=list)

    async def dial(self, client: str = "a") -> End:
        """Connect a device and return its end of the connection."""
        end = End(*await asyncio.open_connection(HOST, self.ports.devices[client]))
        self.ends.append(end)
        return end

    async def connect(self, client: str = "a") -> tuple[End, End]:
        """Connect a device, wait until the gateway connects to the server for it, and return the
        device's end and the server's end."""
        device = await self.dial(client)
        return device, await self.accepted.get()

    async def echo(self, client: str) -> None:
        """Send bytes there and back, which proves that the gateway has looked at every socket
        since."""
        device, server = await self.connect(client)
        await device.send(b"ping")
        assert await server.receive(4) == b"ping"
        await server.send(b"pong")
        assert await device.receive(4) == b"pong"
        device.abort()
        server.abort()

    async def controller(self) -> Controller:
        return await Controller.connect(self.ports, CONTROLLER, self.clock)


Start = Callable[..., Awaitable[World]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start gateways with the devices a, b and c, by default without shaping."""
    closing: list[Callable[[], object]] = []
    tasks: list[asyncio.Task[None]] = []
    worlds: list[World] = []

    async def begin(
        shape: Shape | None = None,
        shared: SharedLine | None = None,
        clock: Clock | None = None,
        control_clock: Clock | None = None,
        **settings: Any,
    ) -> World:
        accepted: asyncio.Queue[End] = asyncio.Queue()
        ends: list[End] = []

        async def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ends.append(End(reader, writer))
            await accepted.put(ends[-1])

        server = await asyncio.start_server(arrived, HOST, 0)
        config = GatewayProcess(
            group="phones",
            seed=7,
            devices=[GatewayDevice(client=each, shape=shape or Shape()) for each in "abc"],
            shared=shared or SharedLine(),
            upstream=f"{HOST}:{server.sockets[0].getsockname()[1]}",
            ready="",
            credentials="",
            **settings,
        )
        clock = clock or WallClock()
        gateway = Gateway(config, clock)
        devices = gateway.listen()
        control = ControlService(gateway, control_clock or clock, GivenCredentials(GATEWAY))
        port = await control.listen()
        tasks.append(asyncio.create_task(control.keep_lease()))
        closing.extend([server.close, port.close, gateway.close])
        ports = Ports(host=HOST, control=port.number, devices=devices)
        world = World(gateway, ports, accepted, control_clock or clock, ends)
        worlds.append(world)
        return world

    yield begin
    for world in worlds:
        for end in world.ends:
            end.abort()
    for close in closing:
        close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


MakeFleet = Callable[..., LinkFleet]


@pytest.fixture
async def fleets() -> AsyncIterator[MakeFleet]:
    """Make fleets of gateways; arguments are those of LinkFleet."""
    made: list[LinkFleet] = []

    def make(**settings: Any) -> LinkFleet:
        made.append(LinkFleet(**settings))
        return made[-1]

    yield make
    for fleet in made:
        await fleet.network.close()
