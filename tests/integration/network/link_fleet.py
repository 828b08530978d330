"""The links of gateways as faults see them, without a supervisor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from muster.common.clock import WallClock
from muster.common.testing import made_credentials
from muster.emulator.gateway.config import gateway_name
from muster.emulator.link_control.link_site import EmulatedLinks
from muster.emulator.link_control.network import GatewayFleet

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.network.conftest import World

    from muster.common.events import Event
    from muster.emulator.gateway.config import GatewayProcess, Ports
    from muster.emulator.launch.backend import Backend
    from muster.emulator.links.shape import Shape


CONTROLLER = made_credentials("supervisor")


class Programs:
    """A backend of which only the programs that are alive matter."""

    def __init__(self) -> None:
        self.alive: dict[str, object] = {}


class LinkFleet:
    """Gateways, and the links behind them as faults see them."""

    def __init__(self, patience_s: float = 10.0) -> None:
        self.programs = Programs()
        self.recorded: list[Event] = []
        backend = cast("Backend", self.programs)
        self.network = GatewayFleet(
            backend, WallClock(), self.recorded.append, lambda: CONTROLLER, patience_s
        )
        self.groups: dict[str, str] = {}
        self.shapes: dict[str, Shape] = {}
        self.links = EmulatedLinks(self.network, self.groups, self.shapes)

    def know(self, config: GatewayProcess) -> None:
        """Enter the devices of a gateway."""
        self.groups |= {device.client: config.group for device in config.devices}
        self.shapes |= {device.client: device.shape for device in config.devices}

    async def add(self, config: GatewayProcess, ports: Ports) -> None:
        """Connect to a gateway that is alive."""
        self.know(config)
        self.programs.alive[gateway_name(config.group)] = object()
        await self.network.add(config, ports)

    async def join(self, world: World) -> None:
        """Connect to the gateway of a world, and keep the connection."""
        await self.add(world.gateway.config, world.ports)
        self.network.watch()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0)
