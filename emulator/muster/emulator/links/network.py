"""Controls the gateways of a running fleet: connects to them, measures their links, and records
their traffic."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import LaunchFailed, RunFailed, TransportError
from muster.common.events import Tell, Traffic, Verified, Verifying
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.launch.backend import Backend
from muster.emulator.links.controller import Controller
from muster.emulator.links.verification import GatewayUnderTest, verify_gateways
from muster.emulator.links.verification.tables import describe

_ANSWER_S = 30.0
"""Seconds to wait for a gateway that is alive but does not answer."""

_AGAIN_S = 0.1
_EVERY_S = 1.0
_SHORT_S = 1.0
"""Seconds over which a rate is measured before a run."""


class GatewayFleet:
    """The gateways of a run. A connection to each gateway keeps its faults and settings in force; a
    gateway that loses the connection heals itself.

    Args:
        record: records an event in the journal.
    """

    def __init__(self, backend: Backend, clock: Clock, record: Tell) -> None:
        self._backend = backend
        self._clock = clock
        self._record = record
        self._gateways: dict[str, GatewayUnderTest] = {}
        self._controllers: dict[str, Controller] = {}
        self._upstream: str | None = None
        self._watches: dict[str, asyncio.Task[None]] | None = None

    @property
    def names(self) -> set[str]:
        """Names of the gateways' programs."""
        return {gateway_name(group) for group in self._gateways}

    async def add(self, config: GatewayProcess, ports: Ports) -> None:
        """Connect to a gateway that has been started. It replaces an earlier gateway of its group.

        Raises:
            LaunchFailed: the gateway is alive but does not answer.
        """
        group, controller = config.group, Controller(ports, config.controller_token, self._clock)
        earlier = self._controllers.get(group)
        self._gateways[group] = GatewayUnderTest(config, ports, controller)
        self._controllers[group] = controller
        if earlier is not None:
            await earlier.close()

        async def connect() -> None:
            if self._controllers[group] is controller:  # unless it has been replaced meanwhile
                await controller.open()

        await self._ask(group, connect)
        if self._upstream is not None:
            await self.set_upstream(self._upstream, [group])
        if self._watches is not None:
            self._watch(group)

    def restart_config(self, name: str) -> GatewayProcess:
        """The settings with which to restart a gateway, so that it listens on the same ports."""
        gateway = next(g for g in self._gateways.values() if gateway_name(g.group) == name)
        changes = {"again": gateway.ports, "upstream": self._upstream or gateway.config.upstream}
        return gateway.config.model_copy(update=changes)

    async def set_upstream(self, address: str, groups: Iterable[str] | None = None) -> None:
        """Make gateways connect to the server at `address`.

        Args:
            groups: the groups whose gateways to change; absent: all.

        Raises:
            LaunchFailed: a gateway is alive but does not answer.
        """
        self._upstream = address
        for group in list(self._gateways) if groups is None else groups:
            await self._ask(group, partial(self._set_upstream, group, address))

    async def _set_upstream(self, group: str, address: str) -> None:
        await self._controllers[group].upstream(address)

    async def _ask(self, group: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Send a request to a gateway. A gateway that has died is skipped, because it gets the
        request when it has been restarted.

        Raises:
            LaunchFailed: the gateway is alive but does not answer.
        """
        name, limit = gateway_name(group), self._clock.monotonic() + _ANSWER_S
        while name in self._backend.alive:
            try:
                return await ask()
            except TransportError as error:
                if self._clock.monotonic() > limit:
                    raise LaunchFailed(f"{name} is alive but does not answer: {error}") from None
            await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)

    def controller(self, group: str) -> Controller:
        """The controller of a group's gateway."""
        return self._controllers[group]

    def ports(self, group: str) -> Ports | None:
        """The ports of a group's gateway; None: the group has no gateway."""
        gateway = self._gateways.get(group)
        return gateway.ports if gateway is not None else None

    async def verify(self, scenario: str) -> None:
        """Measure all links briefly.

        Raises:
            RunFailed: a link does not match its settings.
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
            show=lambda step: self._record(Verifying(step)),
        )
        self._record(Verified(found.ok, len(found.rows)))
        if not found.ok:
            raise RunFailed(
                f"links do not match their settings (verify = true):\n{describe(found)}\n"
                f"`muster verify` measures them at length"
            )

    def watch(self) -> None:
        """From now on record the traffic of every gateway about once per second. When its
        connection is closed, record the traffic since the last record."""
        self._watches = {}
        for group in self._gateways:
            self._watch(group)

    def _watch(self, group: str) -> None:
        assert self._watches is not None
        if (earlier := self._watches.get(group)) is not None:
            earlier.cancel()
        self._watches[group] = asyncio.create_task(
            self._record_traffic(group, self._controllers[group])
        )

    async def _record_traffic(self, group: str, controller: Controller) -> None:
        try:
            before, cancelled = await controller.stats(), None
            while cancelled is None:
                try:
                    await self._clock.sleep_until(self._clock.monotonic() + _EVERY_S)
                except asyncio.CancelledError as error:
                    cancelled = error
                now = await controller.stats()
                moved = _moved(group, before, now)
                if moved.bytes_up or moved.bytes_down:
                    self._record(moved)
                before = now
            raise cancelled
        except TransportError:
            return  # the supervisor records the gateway's death

    async def close(self) -> None:
        """End the connections to the gateways."""
        watches = list((self._watches or {}).values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for controller in self._controllers.values():
            await controller.close()


def _moved(group: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Traffic:
    """The traffic of a gateway between two of its statistics."""

    def delivered(direction: str) -> int:
        return sum(
            each[direction]["bytes"] - before["devices"][client][direction]["bytes"]
            for client, each in now["devices"].items()
        )

    def capacity(direction: str) -> float | None:
        since, until = (look["shared"][direction]["capacity"] for look in (before, now))
        return None if since is None or until is None else until - since

    return Traffic(
        group,
        seconds=now["at"] - before["at"],
        bytes_up=delivered("up"),
        bytes_down=delivered("down"),
        capacity_up=capacity("up"),
        capacity_down=capacity("down"),
    )
