"""The gateways of a run that goes on: started, measured, watched."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import RunFailed, TransportError
from muster.emulator.launch.backend import Backend
from muster.emulator.network.config import GatewayProcess, Ports, gateway_name
from muster.emulator.network.controller import Controller
from muster.emulator.network.verification import Gateway, verify_gateways
from muster.emulator.network.verification.tables import describe

_EVERY_S = 1.0
_SHORT_S = 1.0
"""Over which a rate is measured before a run."""

Tell = Callable[..., None]


class Network:
    """The gateways of a run. A connection to each keeps faults and settings in force; a gateway
    that loses it heals itself.

    Args:
        tell: records an event in the journal.
    """

    def __init__(self, clock: Clock, tell: Tell) -> None:
        self._clock = clock
        self._tell = tell
        self._gateways: dict[str, Gateway] = {}
        self._open = AsyncExitStack()

    async def start(self, configs: Iterable[GatewayProcess], backend: Backend) -> None:
        """Start the gateways, before the first device.

        Raises:
            LaunchFailed: one did not come up.
        """
        for config in configs:
            ports = await backend.start_gateway(config)
            controller = Controller(ports, config.controller_token, self._clock)
            await self._open.enter_async_context(controller)
            self._gateways[config.group] = Gateway(config, ports, controller)
            self._tell("started", process=gateway_name(config.group))

    async def lead_to(self, address: str) -> None:
        """Have the gateways dial the server."""
        for gateway in self._gateways.values():
            await gateway.controller.upstream(address)

    def ports(self, group: str) -> Ports | None:
        """Where the gateway of a group listens; None: it has none."""
        gateway = self._gateways.get(group)
        return gateway.ports if gateway is not None else None

    async def verify(self, scenario: str, backend: Backend) -> None:
        """Measure all links in short.

        Raises:
            RunFailed: one is not what was asked for.
        """
        reached = [
            replace(gateway, ports=backend.within_reach(group, gateway.ports))
            for group, gateway in self._gateways.items()
        ]
        found = await verify_gateways(
            reached,
            self._clock,
            here=backend.here,
            scenario=scenario,
            seconds=_SHORT_S,
            grpc=False,
            show=lambda step: self._tell("verifying", step=step),
        )
        self._tell("verified", ok=found.ok, measured=len(found.rows))
        if not found.ok:
            raise RunFailed(
                f"links are not what was asked for, and verify = true:\n{describe(found)}\n"
                f"`muster verify` measures them at length"
            )

    async def watch(self) -> None:
        """Tell of every gateway about every second what it delivered; until it is cancelled."""
        async with asyncio.TaskGroup() as watching:
            for gateway in self._gateways.values():
                watching.create_task(self._watch(gateway))

    async def _watch(self, gateway: Gateway) -> None:
        try:
            before = await gateway.controller.stats()
            while True:
                await self._clock.sleep_until(self._clock.monotonic() + _EVERY_S)
                now = await gateway.controller.stats()
                moved = _moved(before, now)
                if moved["bytes_up"] or moved["bytes_down"]:
                    self._tell("traffic", group=gateway.group, **moved)
                before = now
        except TransportError:
            return  # the gateway's death is the supervisor's to tell

    async def close(self) -> None:
        """End the connections to the gateways."""
        await self._open.aclose()


def _moved(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, float | None]:
    """What went through a gateway between two looks at it."""
    found: dict[str, float | None] = {"seconds": now["at"] - before["at"]}
    for direction in ("up", "down"):
        delivered = (
            each[direction]["bytes"] - before["devices"][client][direction]["bytes"]
            for client, each in now["devices"].items()
        )
        found[f"bytes_{direction}"] = sum(delivered)
        since, until = (look["shared"][direction]["capacity"] for look in (before, now))
        capacity = None if since is None or until is None else until - since
        found[f"capacity_{direction}"] = capacity
    return found
