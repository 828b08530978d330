"""What goes through a run's gateways, written into its journal."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import TransportError
from muster.emulator.network.config import GatewayProcess, Ports
from muster.emulator.network.controller import Controller

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
    async with Controller(ports, gateway.controller_token, clock) as controller:
        before = await controller.stats()
        while True:
            await clock.sleep_until(clock.monotonic() + _EVERY_S)
            try:
                now = await controller.stats()
            except TransportError:
                return  # its death is the supervisor's to tell
            moved = _moved(before, now)
            if moved["bytes_up"] or moved["bytes_down"]:
                tell("traffic", group=gateway.group, **moved)
            before = now


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
