"""What goes through a run's gateways, written into its journal."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import TransportError
from muster.emulator.network.config import GatewayProcess, Ports

_EVERY_S = 1.0


async def watch_traffic(
    gateways: Sequence[GatewayProcess],
    ports: Mapping[str, Ports],
    clock: Clock,
    tell: Callable[..., None],
) -> None:
    """Tell of every gateway about every second what it delivered; until it is cancelled.

    Asking is also what keeps gateways from healing themselves: as long as somebody watches, faults
    stay.

    Args:
        ports: by group.
    """
    async with asyncio.TaskGroup() as watching:
        for gateway in gateways:
            watching.create_task(_watch(gateway, ports[gateway.group], clock, tell))


async def _watch(
    gateway: GatewayProcess, ports: Ports, clock: Clock, tell: Callable[..., None]
) -> None:
    from muster.emulator.network.controller import Controller

    async with Controller(ports, gateway.controller_token, clock) as controller:
        before = _Sample(await controller.stats())
        while True:
            await clock.sleep_until(clock.monotonic() + _EVERY_S)
            try:
                sample = _Sample(await controller.stats())
            except TransportError:
                return  # its death is the supervisor's to tell
            moved = sample.since(before)
            if moved["bytes_up"] or moved["bytes_down"]:
                tell("traffic", group=gateway.group, **moved)
            before = sample
