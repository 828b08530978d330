"""The links of a running fleet, as injected faults see them.

What faults change is entered here first, and then brought to the gateways, each on its own. A
gateway that cannot be reached gets what holds then as soon as it is connected again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from muster.common.errors import TransportError
from muster.emulator.faults.injection import LinkSite, SharedSite
from muster.emulator.faults.link_changes import LinkChange, LinkState, shape_of, state_of
from muster.emulator.faults.link_measures import LinkMeasures, LinkMeter
from muster.emulator.gateway.faults import Fault
from muster.emulator.link_control.controller import Controller
from muster.emulator.link_control.shared_site import EmulatedSharedLinks, RunningGateways
from muster.emulator.links.shape import Shape


class GatewayConnections(RunningGateways, Protocol):
    """The connections to the gateways of a run."""

    def controller(self, group: str) -> Controller:
        """The controller of a group's gateway."""
        ...


class EmulatedLinks(LinkSite):
    """The links of a running fleet.

    Args:
        groups: the group of each client.
        nominal: the shape of each client's link without faults.
    """

    def __init__(
        self, network: GatewayConnections, groups: Mapping[str, str], nominal: Mapping[str, Shape]
    ) -> None:
        self._network = network
        self._groups = groups
        self._nominal = nominal
        self._changes: dict[str, list[LinkChange]] = defaultdict(list)
        self._brought: dict[str, LinkState | None] = {}
        self._connected: dict[str, Controller] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._meters: dict[str, LinkMeter] = {}
        network.on_connection(self._renew)
        self.shared: SharedSite = EmulatedSharedLinks(network)

    async def begin(self, targets: Iterable[str], change: LinkChange) -> None:
        targets = list(targets)
        for client in targets:
            self._changes[client].append(change)
        await self._bring_all(targets)

    async def end(self, targets: Iterable[str], change: LinkChange) -> None:
        targets = list(targets)
        for client in targets:
            self._changes[client].remove(change)
        await self._bring_all(targets)

    async def strike(self, targets: Iterable[str], fault: Fault) -> None:
        async def strike(controller: Controller, clients: Sequence[str]) -> None:
            await controller.fault(clients, fault=fault.fault)

        await self._at_gateways(targets, strike)

    async def measures(self, targets: Iterable[str]) -> Mapping[str, LinkMeasures]:
        found: dict[str, LinkMeasures] = {}

        async def measure(controller: Controller, clients: Sequence[str]) -> None:
            found.update(await self._read(controller, clients))

        await self._at_gateways(targets, measure)
        return found

    def shape(
        self, client: str, *, but: LinkChange | None = None, with_: LinkChange | None = None
    ) -> Shape:
        changes = list(self._changes[client])
        if but in changes:
            changes.remove(but)
        return shape_of(self._nominal[client], changes + ([] if with_ is None else [with_]))

    # --- gateways --------------------------------------------------------------------------------

    async def _at_gateways(self, targets: Iterable[str], do: Any) -> None:
        """Call `do` with the controller of every gateway and its targets. A gateway that cannot be
        reached does not keep the others from it."""
        clients: dict[str, list[str]] = defaultdict(list)
        for client in targets:
            clients[self._groups[client]].append(client)

        async def at(group: str) -> None:
            with suppress(TransportError):
                async with self._turns[group]:
                    await do(await self._controller(group), clients[group])

        await asyncio.gather(*map(at, clients))

    async def _bring_all(self, targets: Iterable[str]) -> None:
        await self._at_gateways(targets, self._bring)

    async def _renew(self, group: str) -> None:
        async with self._turns[group]:
            await self._controller(group)

    async def _controller(self, group: str) -> Controller:
        """The controller of a group's gateway. If its connection is another than the last, all
        that holds is brought to the gateway first."""
        controller = self._network.controller(group)
        if controller is not self._connected.setdefault(group, controller):
            clients = [client for client in self._changes if self._groups[client] == group]
            for client in clients:
                self._brought[client] = None  # its process may be another, or have healed itself
            await self._bring(controller, clients)
            self._connected[group] = controller
        return controller

    async def _bring(self, controller: Controller, clients: Sequence[str]) -> None:
        """Bring what holds on links to their gateway, as far as the gateway does not know it."""
        wanted = {
            client: state_of(self._nominal[client], self._changes[client]) for client in clients
        }
        requests = _Requests()
        for client, state in wanted.items():
            requests.add(client, self._known(client), state)
            self._brought[client] = None  # until all requests have been answered
        await requests.send(controller)
        self._brought |= wanted
        for client in clients:
            self._meter(client).begin_again()
        await self._read(controller, clients)  # what follows is "lately"

    async def _read(
        self, controller: Controller, clients: Sequence[str]
    ) -> Mapping[str, LinkMeasures]:
        stats = await controller.stats(clients)
        return {
            client: self._meter(client).read(stats["at"], stats["began"], stats["devices"][client])
            for client in clients
        }

    def _meter(self, client: str) -> LinkMeter:
        if client not in self._meters:
            self._meters[client] = LinkMeter()
        return self._meters[client]

    def _known(self, client: str) -> LinkState | None:
        """What the gateway has of a link; None: that is not known."""
        return self._brought.get(client, state_of(self._nominal[client], ()))


class _Requests:
    """The requests that lead links from one state to another, each for as many links as
    possible."""

    def __init__(self) -> None:
        self._heals: dict[Any, list[str]] = defaultdict(list)
        self._shapes: dict[tuple[tuple[str, float | None], ...], list[str]] = defaultdict(list)
        self._faults: dict[Fault, list[str]] = defaultdict(list)

    def add(self, client: str, old: LinkState | None, new: LinkState) -> None:
        """Add what leads one link from a state, or from an unknown one (None), to another."""
        for key in _HELD if old is None else old.faults:
            if key not in new.faults:
                self._heals[key].append(client)
        if old is None or new.shape != old.shape:
            self._shapes[tuple(new.changed.items())].append(client)
        for key, fault in new.faults.items():
            if old is None or old.faults.get(key) != fault:
                self._faults[fault].append(client)

    async def send(self, controller: Controller) -> None:
        for (fault, direction), clients in self._heals.items():
            await controller.heal(clients, fault, direction)
        for shape, clients in self._shapes.items():
            await controller.set(dict(shape), clients)
        for each, clients in self._faults.items():
            fields = each.model_dump(exclude_none=True, exclude_defaults=True)
            await controller.fault(clients, **fields)


_HELD = [
    ("offline", None), ("blackhole", None),
    ("cut", "up"), ("cut", "down"), ("limit", "up"), ("limit", "down"),
    ("quota", "up"), ("quota", "down"), ("flap", None),
]  # fmt: skip
"""The keys of all faults that may be active at a gateway."""
