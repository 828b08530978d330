"""Controls the gateways of a running fleet: connects to them, and records their traffic."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from muster.common.clock import Clock
from muster.common.credentials import Credentials, gateway_identity
from muster.common.errors import LaunchFailed, TransportError
from muster.common.events import Tell, Traffic
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.launch.backend import Backend, Program
from muster.emulator.link_control.controller import PATIENCE_S, Controller
from muster.emulator.link_control.running_gateway import RunningGateway

_ANSWER_S = 30.0
"""Seconds to wait for a gateway that is alive but does not answer."""

_AGAIN_S = 0.1
_EVERY_S = 1.0

Renew = Callable[[str], Awaitable[None]]


class GatewayFleet:
    """The gateways of a run. A connection to each gateway keeps its faults and settings in force; a
    gateway that loses the connection heals itself. A connection that is lost, for example because
    the gateway was paused, is made again for as long as the gateway's process lives.

    Args:
        record: records an event in the journal.
        credentials: returns the supervisor's credentials.
        patience_s: seconds after which the connection to a gateway that does not reply is made
            again.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        record: Tell,
        credentials: Callable[[], Credentials],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._credentials = credentials
        self._patience_s = patience_s
        self._backend = backend
        self._clock = clock
        self._record = record
        self._gateways: dict[str, RunningGateway] = {}
        self._controllers: dict[str, Controller] = {}
        self._upstream: str | None = None
        self._watches: dict[str, asyncio.Task[None]] | None = None
        self._looks: dict[str, Mapping[str, Any]] = {}
        self._renewals: list[Renew] = []

    def on_connection(self, renew: Renew) -> None:
        """Call `renew` with the name of a group whenever a connection to its gateway has been made
        again. Nothing that was asked of the gateway before may hold any more."""
        self._renewals.append(renew)

    @property
    def names(self) -> set[str]:
        """Names of the gateways' programs."""
        return {gateway_name(group) for group in self._gateways}

    async def add(self, config: GatewayProcess, ports: Ports) -> None:
        """Connect to a gateway that has been started. It replaces an earlier gateway of its group.

        Raises:
            LaunchFailed: the gateway is alive but does not answer.
        """
        group = config.group
        again = group in self._gateways
        await self._unwatch(group)
        if again:
            await self._controllers[group].close()
        controller = self._new_controller(config, ports)
        self._looks.pop(group, None)

        async def connect() -> None:
            if self._controllers[group] is controller:  # unless it has been replaced meanwhile
                await controller.open()
                if again:
                    await self._renew(group)

        await self._ask(group, connect)
        if self._upstream is not None:
            await self.set_upstream(self._upstream, [group])
        if self._watches is not None:
            self._watch(group)

    def _new_controller(self, config: GatewayProcess, ports: Ports) -> Controller:
        credentials, peer = self._credentials(), gateway_identity(config.group)
        controller = Controller(ports, credentials, self._clock, self._patience_s, peer)
        self._gateways[config.group] = RunningGateway(config, ports, controller)
        self._controllers[config.group] = controller
        return controller

    async def _renew(self, group: str) -> None:
        for renew in self._renewals:
            await renew(group)

    def restart_config(self, name: str) -> GatewayProcess:
        """The settings with which to restart a gateway, so that it listens on the same ports."""
        gateway = self.gateway(name)
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

    def gateway(self, name: str) -> RunningGateway:
        """A gateway, by the name of its program."""
        return next(g for g in self._gateways.values() if gateway_name(g.group) == name)

    def controller(self, group: str) -> Controller:
        """The controller of a group's gateway."""
        return self._controllers[group]

    def ports(self, group: str) -> Ports | None:
        """The ports of a group's gateway; None: the group has no gateway."""
        gateway = self._gateways.get(group)
        return gateway.ports if gateway is not None else None

    def reached(self) -> list[RunningGateway]:
        """The gateways, with the ports on which this machine reaches them."""
        return [
            replace(gateway, ports=self._backend.reachable_ports(group, gateway.ports))
            for group, gateway in self._gateways.items()
        ]

    def watch(self) -> None:
        """From now on keep the connection to every gateway, and record its traffic about once per
        second. When its connection is closed, record the traffic since the last record."""
        self._watches = {}
        for group in self._gateways:
            self._watch(group)

    def _watch(self, group: str) -> None:
        assert self._watches is not None
        self._watches[group] = asyncio.create_task(self._keep(group))

    async def _unwatch(self, group: str) -> None:
        if self._watches is not None and (watch := self._watches.pop(group, None)) is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _keep(self, group: str) -> None:
        """Record the traffic of a gateway for as long as its process lives."""
        program = self._backend.alive.get(gateway_name(group))
        connected = True
        while connected:
            with suppress(TransportError):
                await self._record_traffic(group)
            connected = await self._connect_again(group, program)

    async def _record_traffic(self, group: str) -> None:
        while True:
            await self._look(group)
            try:
                await self._clock.sleep_until(self._clock.monotonic() + _EVERY_S)
            except asyncio.CancelledError:
                with suppress(TransportError):
                    await self._look(group)
                raise

    async def _look(self, group: str) -> None:
        """Record the traffic of a gateway since the look before."""
        now = await self._controllers[group].stats()
        before = self._looks.get(group, now)
        self._looks[group] = now
        moved = traffic_between(group, before, now)
        if moved.bytes_up or moved.bytes_down:
            self._record(moved)

    async def _connect_again(self, group: str, program: Program | None) -> bool:
        """Connect to a gateway whose connection was lost; return whether its process still lives.
        If it does not, the supervisor records its death and starts it again."""
        gateway = self._gateways[group]
        while program is not None and self._backend.alive.get(gateway_name(group)) is program:
            await self._controllers[group].close()
            controller = self._new_controller(gateway.config, gateway.ports)
            with suppress(TransportError):
                await controller.open()
                if self._upstream is not None:
                    await controller.upstream(self._upstream)
                await self._renew(group)
                return True
            await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)
        return False

    async def close(self) -> None:
        """End the connections to the gateways."""
        watches = list((self._watches or {}).values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for controller in self._controllers.values():
            await controller.close()


def traffic_between(group: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Traffic:
    """The traffic of a gateway between two of its statistics."""

    def delivered(direction: str) -> int:
        return sum(
            each[direction]["bytes"] - before["devices"][client][direction]["bytes"]
            for client, each in now["devices"].items()
        )

    def of_cell(name: str) -> dict[str, float | None]:
        looks = before["cells"][name], now["cells"][name]
        return {
            f"{key}_{direction}": _difference(*(look[direction][key] for look in looks))
            for key in ("bytes", "capacity")
            for direction in ("up", "down")
        }

    def capacity(direction: str) -> float | None:
        return _difference(*(look["shared"][direction]["capacity"] for look in (before, now)))

    cells = {name: of_cell(name) for name in now["cells"]}
    moved = {name: cell for name, cell in cells.items() if cell["bytes_up"] or cell["bytes_down"]}
    return Traffic(
        group,
        seconds=now["at"] - before["at"],
        bytes_up=delivered("up"),
        bytes_down=delivered("down"),
        capacity_up=capacity("up"),
        capacity_down=capacity("down"),
        cells=moved,
    )


def _difference(since: float | None, until: float | None) -> float | None:
    return None if since is None or until is None else until - since
