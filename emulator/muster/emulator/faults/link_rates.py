"""The rates of links that faults degrade, as they were set and as their gateways measure them."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from muster.emulator.links.controller import Controller
from muster.emulator.scenario.scenario import Scenario

Links = Mapping[str, tuple[Controller, Sequence[str]]]
"""Controllers of gateways by group, each with some devices of the group."""

_LEAST_S = 0.1
"""Shortest time over which a rate is measured."""


class LinkRates:
    """The factors by which faults multiply the rates of devices' links."""

    def __init__(self, scenario: Scenario) -> None:
        self._seed = scenario.seed
        self._settings = {group.name: group.link for group in scenario.groups}
        self._factors: dict[str, list[float]] = {}
        self._seen: dict[str, tuple[float, float]] = {}
        self._shares: dict[str, float] = {}

    async def scale(self, links: Links, factor: float) -> None:
        """Multiply the rates of links by one more factor."""
        await self._set(links, lambda factors: factors.append(factor))

    async def restore(self, links: Links, factor: float) -> None:
        """Take a factor away again."""
        await self._set(links, lambda factors: factors.remove(factor))

    async def _set(self, links: Links, change: Any) -> None:
        for group, (controller, clients) in links.items():
            for client in clients:
                change(factors := self._factors.setdefault(client, []))
                shape = self._settings[group].shape_of(self._seed, client)
                rates = {"down_bps": shape.down_bps, "up_bps": shape.up_bps}
                scaled = {
                    way: None if bps is None else bps * prod(factors) for way, bps in rates.items()
                }
                await controller.set(scaled, [client])
                self._seen.pop(client, None)
                self._shares.pop(client, None)

    async def measure(self, links: Links) -> dict[str, float]:
        """The rate at which each link could deliver since the look before, as a share of its
        nominal rate; without links at which nobody has looked for long enough."""
        for group, (controller, clients) in links.items():
            stats = await controller.stats()
            for client in clients:
                shape = self._settings[group].shape_of(self._seed, client)
                way, bps = ("up", shape.up_bps) if shape.up_bps else ("down", shape.down_bps)
                capacity = stats["devices"][client][way]["capacity"]
                if bps is None or capacity is None:
                    continue
                at, before = self._seen.setdefault(client, (stats["at"], capacity))
                if stats["at"] - at >= _LEAST_S:
                    self._shares[client] = 8 * (capacity - before) / (stats["at"] - at) / bps
                    self._seen[client] = stats["at"], capacity
        known = [client for _, clients in links.values() for client in clients]
        return {client: self._shares[client] for client in known if client in self._shares}
