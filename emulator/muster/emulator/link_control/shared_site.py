"""The shared links of a running fleet, as injected faults see them."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from muster.common.errors import TransportError
from muster.common.rates.recording import Direction
from muster.emulator.faults.injection import SharedSite
from muster.emulator.faults.link_changes import LinkChange, shared_state_of
from muster.emulator.faults.link_measures import MeasuredRates
from muster.emulator.gateway.config import gateway_name
from muster.emulator.gateway.rates import rate_of_limit
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.links.shape import SharedState


class RunningGateways(Protocol):
    """The gateways of a run."""

    def gateway(self, name: str) -> RunningGateway:
        """A gateway, by the name of its program."""
        ...

    def on_connection(self, renew: Callable[[str], Awaitable[None]]) -> None:
        """Call `renew` with the name of a group whenever a connection to its gateway has been made
        again."""
        ...


class EmulatedSharedLinks(SharedSite):
    """The shared links of a running fleet. Changes are entered here first; a gateway that cannot be
    reached gets what holds then as soon as it is connected again."""

    def __init__(self, network: RunningGateways) -> None:
        self._network = network
        self._changes: dict[str, list[LinkChange]] = defaultdict(list)
        self._meters: dict[str, MeasuredRates] = defaultdict(MeasuredRates)
        network.on_connection(self._renew)

    async def begin(self, gateways: Iterable[str], change: LinkChange) -> None:
        for name in gateways:
            self._changes[name].append(change)
            await self._bring(name)

    async def end(self, gateways: Iterable[str], change: LinkChange) -> None:
        for name in gateways:
            self._changes[name].remove(change)
            await self._bring(name)

    async def measures(self, gateways: Iterable[str]) -> Mapping[str, Mapping[Direction, float]]:
        found: dict[str, Mapping[Direction, float]] = {}
        for name in gateways:
            with suppress(TransportError):
                await self._look(name)
                found[name] = dict(self._meters[name].bps)
        return found

    def state(
        self, gateway: str, *, but: LinkChange | None = None, with_: LinkChange | None = None
    ) -> SharedState:
        changes = list(self._changes[gateway])
        if but in changes:
            changes.remove(but)
        return shared_state_of(changes + ([] if with_ is None else [with_]))

    def mean_bps(self, gateway: str, direction: Direction, state: SharedState) -> float:
        limit = self._network.gateway(gateway).config.shared.limit(direction)
        return 8 * rate_of_limit(limit, *state.of(direction)).mean

    async def _renew(self, group: str) -> None:
        if self._changes.get(name := gateway_name(group)):
            await self._bring(name)

    async def _bring(self, name: str) -> None:
        """Bring what holds to a gateway, and measure from now on."""
        self._meters[name].begin_again()
        with suppress(TransportError):
            await self._network.gateway(name).controller.set_shared(self.state(name))
            await self._look(name)

    async def _look(self, name: str) -> None:
        stats = await self._network.gateway(name).controller.stats([])
        self._meters[name].read(stats["at"], stats["shared"])
