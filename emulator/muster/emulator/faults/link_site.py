"""The links of a running fleet, as injected faults see them.

What faults change is entered here first, and then brought to the gateways, each on its own. A
gateway that cannot be reached gets what holds then as soon as it is connected again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from muster.common.errors import TransportError
from muster.emulator.faults.link_changes import LinkChange, LinkState, state_of
from muster.emulator.gateway.faults import Fault
from muster.emulator.links.controller import Controller
from muster.emulator.links.shape import Shape

_LEAST_S = 0.1
"""Shortest time over which a rate is measured."""


class LinkMeasures(NamedTuple):
    """What a gateway has measured of a link.

    Attributes:
        struck: how often a fault has struck one of its connections.
        rate_share: the rate at which it could deliver since its last change or the look before, as
            a share of its nominal rate; None: it has no rate, or nobody has looked for long enough.
    """

    struck: int
    rate_share: float | None = None


class GatewayConnections(Protocol):
    """The connections to the gateways of a run."""

    def controller(self, group: str) -> Controller:
        """The controller of a group's gateway."""
        ...

    def on_connection(self, renew: Callable[[str], Awaitable[None]]) -> None:
        """Call `renew` with the name of a group whenever a connection to its gateway has been made
        again."""
        ...


class LinkSite:
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
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._meters: dict[str, _Meter] = {}
        network.on_connection(self._renew)

    async def begin(self, targets: Iterable[str], change: LinkChange) -> None:
        """Let a change act on the links of devices."""
        targets = list(targets)
        for client in targets:
            self._changes[client].append(change)
        await self._bring_all(targets)

    async def end(self, targets: Iterable[str], change: LinkChange) -> None:
        """Let one change that equals `change` act on these links no longer."""
        targets = list(targets)
        for client in targets:
            self._changes[client].remove(change)
        await self._bring_all(targets)

    async def strike(self, targets: Iterable[str], fault: Fault) -> None:
        """Let a fault happen once. A gateway that cannot be reached has no connections to
        strike."""

        async def strike(controller: Controller, clients: Sequence[str]) -> None:
            await controller.fault(clients, fault.fault)

        await self._at_gateways(targets, strike)

    async def measures(self, targets: Iterable[str]) -> Mapping[str, LinkMeasures]:
        """What the gateways have measured; without links whose gateway cannot be reached."""
        found: dict[str, LinkMeasures] = {}

        async def measure(controller: Controller, clients: Sequence[str]) -> None:
            stats = await controller.stats()
            for client in clients:
                meter = self._meters.setdefault(client, _Meter(self._nominal[client]))
                found[client] = meter.read(stats["at"], stats["began"], stats["devices"][client])

        await self._at_gateways(targets, measure)
        return found

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
                    await do(self._network.controller(group), clients[group])

        await asyncio.gather(*map(at, clients))

    async def _bring_all(self, targets: Iterable[str]) -> None:
        await self._at_gateways(targets, self._bring)

    async def _renew(self, group: str) -> None:
        """Bring all that holds to a gateway that has been connected again."""
        async with self._turns[group]:
            clients = [client for client in self._brought if self._groups[client] == group]
            for client in clients:
                self._brought[client] = None  # its process may be another, or have healed itself
            await self._bring(self._network.controller(group), clients)

    async def _bring(self, controller: Controller, clients: Sequence[str]) -> None:
        """Bring what holds on links to their gateway, as far as the gateway does not know it."""
        wanted = {
            client: state_of(self._nominal[client], self._changes[client]) for client in clients
        }
        requests = _Requests()
        for client, state in wanted.items():
            requests.add(client, self._known(client), state)
            self._brought[client] = None  # until all requests have been answered
            self._meters.setdefault(client, _Meter(self._nominal[client])).begin_again()
        await requests.send(controller)
        self._brought |= wanted

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
            self._shapes[tuple(new.shape.items())].append(client)
        for key, fault in new.faults.items():
            if old is None or old.faults.get(key) != fault:
                self._faults[fault].append(client)

    async def send(self, controller: Controller) -> None:
        for (fault, direction), clients in self._heals.items():
            await controller.heal(clients, fault, direction)
        for shape, clients in self._shapes.items():
            await controller.set(dict(shape), clients)
        for each, clients in self._faults.items():
            await controller.fault(clients, each.fault, direction=each.direction, nbytes=each.bytes)


_HELD = [
    ("offline", None), ("blackhole", None),
    ("cut", "up"), ("cut", "down"), ("limit", "up"), ("limit", "down"),
]  # fmt: skip
"""The keys of all faults that may be active at a gateway."""


class _Meter:
    """Reads the statistics of one link, also if its gateway has been started again."""

    def __init__(self, nominal: Shape) -> None:
        up = nominal.up_bps is not None
        self._way, self._bps = ("up", nominal.up_bps) if up else ("down", nominal.down_bps)
        self._began: float | None = None
        self._struck = self._before = 0
        self._since: tuple[float, float] | None = None
        self._share: float | None = None

    def begin_again(self) -> None:
        """Forget what was measured of the rate, because the link changes."""
        self._since = self._share = None

    def read(self, at: float, began: float, stats: Mapping[str, Any]) -> LinkMeasures:
        """Read the statistics of an instant.

        Args:
            began: when the gateway began.
        """
        if began != self._began:  # another process, which counts from 0
            self._began, self._before = began, 0
            self.begin_again()
        self._struck += stats["struck"] - self._before
        self._before = stats["struck"]
        self._read_rate(at, stats[self._way]["capacity"])
        return LinkMeasures(self._struck, self._share)

    def _read_rate(self, at: float, capacity: float | None) -> None:
        if self._bps is None or capacity is None:
            return
        since, before = self._since or (at, capacity)
        if at - since >= _LEAST_S:
            self._share = 8 * (capacity - before) / (at - since) / self._bps
            since, before = at, capacity
        self._since = since, before
