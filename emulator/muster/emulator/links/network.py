"""The gateways of a run that goes on: started, measured, watched."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import LaunchFailed, RunFailed, TransportError
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.launch.backend import Backend
from muster.emulator.links.controller import Controller
from muster.emulator.links.verification import GatewayUnderTest, verify_gateways
from muster.emulator.links.verification.tables import describe

_ANSWER_S = 30.0
"""Patience with a gateway that lives and does not answer."""

_AGAIN_S = 0.1
_EVERY_S = 1.0
_SHORT_S = 1.0
"""Over which a rate is measured before a run."""

Tell = Callable[..., None]


class GatewayFleet:
    """The gateways of a run. A connection to each keeps faults and settings in force; a gateway
    that loses it heals itself.

    Args:
        tell: records an event in the journal.
    """

    def __init__(self, backend: Backend, clock: Clock, tell: Tell) -> None:
        self._backend = backend
        self._clock = clock
        self._tell = tell
        self._gateways: dict[str, GatewayUnderTest] = {}
        self._controllers: dict[str, Controller] = {}
        self._upstream: str | None = None
        self._watches: dict[str, asyncio.Task[None]] | None = None

    @property
    def names(self) -> set[str]:
        """Names of the gateways' programs."""
        return {gateway_name(group) for group in self._gateways}

    async def add(self, config: GatewayProcess, ports: Ports) -> None:
        """Connect to a gateway that has been started, in place of an earlier one of its group.

        Raises:
            LaunchFailed: it lives and does not answer.
        """
        group, controller = config.group, Controller(ports, config.controller_token, self._clock)
        earlier = self._controllers.get(group)
        self._gateways[group] = GatewayUnderTest(config, ports, controller)
        self._controllers[group] = controller
        if earlier is not None:
            await earlier.close()

        async def connect() -> None:
            if self._controllers[group] is controller:  # else it was replaced meanwhile
                await controller.open()

        await self._ask(group, connect)
        if self._upstream is not None:
            await self.set_upstream(self._upstream, [group])
        if self._watches is not None:
            self._watch(group)

    def again(self, name: str) -> GatewayProcess:
        """What a gateway is to be started with again: it listens where it did."""
        gateway = next(g for g in self._gateways.values() if gateway_name(g.group) == name)
        changes = {"again": gateway.ports, "upstream": self._upstream or gateway.config.upstream}
        return gateway.config.model_copy(update=changes)

    async def set_upstream(self, address: str, groups: Iterable[str] | None = None) -> None:
        """Have gateways dial the server.

        Args:
            groups: whose gateways; absent: all.

        Raises:
            LaunchFailed: one lives and does not answer.
        """
        self._upstream = address
        for group in list(self._gateways) if groups is None else groups:
            await self._ask(group, partial(self._lead_to, group, address))

    async def _lead_to(self, group: str, address: str) -> None:
        await self._controllers[group].upstream(address)

    async def _ask(self, group: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask something of a gateway; of one that has died, nothing: it is asked when it has been
        started again.

        Raises:
            LaunchFailed: it lives and does not answer.
        """
        name, limit = gateway_name(group), self._clock.monotonic() + _ANSWER_S
        while name in self._backend.alive:
            try:
                return await ask()
            except TransportError as error:
                if self._clock.monotonic() > limit:
                    raise LaunchFailed(f"{name} lives and does not answer: {error}") from None
            await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)

    def ports(self, group: str) -> Ports | None:
        """Where the gateway of a group listens; None: it has none."""
        gateway = self._gateways.get(group)
        return gateway.ports if gateway is not None else None

    async def verify(self, scenario: str) -> None:
        """Measure all links in short.

        Raises:
            RunFailed: one is not what was asked for.
        """
        reached = [
            replace(gateway, ports=self._backend.reachable_ports(group, gateway.ports))
            for group, gateway in self._gateways.items()
        ]
        found = await verify_gateways(
            reached,
            self._clock,
            here=self._backend.here,
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

    def watch(self) -> None:
        """From now on tell of every gateway about every second what it delivered; and when the
        connections end, what it delivered since the last second."""
        self._watches = {}
        for group in self._gateways:
            self._watch(group)

    def _watch(self, group: str) -> None:
        assert self._watches is not None
        if (earlier := self._watches.get(group)) is not None:
            earlier.cancel()
        self._watches[group] = asyncio.create_task(
            self._tell_traffic(group, self._controllers[group])
        )

    async def _tell_traffic(self, group: str, controller: Controller) -> None:
        try:
            before, cancelled = await controller.stats(), None
            while cancelled is None:
                try:
                    await self._clock.sleep_until(self._clock.monotonic() + _EVERY_S)
                except asyncio.CancelledError as error:
                    cancelled = error
                now = await controller.stats()
                moved = _moved(before, now)
                if moved["bytes_up"] or moved["bytes_down"]:
                    self._tell("traffic", group=group, **moved)
                before = now
            raise cancelled
        except TransportError:
            return  # the gateway's death is the supervisor's to tell

    async def close(self) -> None:
        """End the connections to the gateways."""
        watches = list((self._watches or {}).values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for controller in self._controllers.values():
            await controller.close()


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
