"""The access network of a group of devices: a port for each device, whose traffic is shaped, cut
and counted.

This module holds the parts together, and carries out what controllers ask for.
- `pump` is the driver: it moves bytes and reads the clock, but decides nothing.
- `shaping` computes what a link does to bytes.
- `rates` computes how the rate of a link varies.
- `faults` defines what can go wrong.
- `ports` accepts the connections of devices and connects them to the server.
- `device_link` is the link of one device, and `relay` handles one connection.
- `control` handles requests over the control port.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import ConfigError
from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.config import GatewayProcess
from muster.emulator.gateway.device_link import DeviceLink, TrafficMeter
from muster.emulator.gateway.faults import Fault, FaultName
from muster.emulator.gateway.flows import CellLink
from muster.emulator.gateway.ports import CONNECTIONS, DevicePorts
from muster.emulator.gateway.pump import Pump
from muster.emulator.gateway.rates import Rate, Unlimited, rate_of_limit
from muster.emulator.gateway.relay import RelayedConnection
from muster.emulator.links.shape import Shape, SharedState

log = logging.getLogger("muster.gateway")


class Gateway:
    """The gateway of a group.

    Args:
        config: the gateway's settings; `ready` and `credentials` are not used here.
        connections: most connections of a device's link.
    """

    def __init__(
        self, config: GatewayProcess, clock: Clock, connections: int = CONNECTIONS
    ) -> None:
        self.config, self._clock = config, clock
        self._shared = SharedState()
        try:
            shared = {each: self._shared_rate(each) for each in DIRECTIONS}
            cells = {
                each: {
                    name: CellLink(rate_of_limit(limit))
                    for name, limit in config.shared.cell_limits(each).items()
                }
                for each in DIRECTIONS
            }
            queues = {each: config.shared.queue_bytes(each) for each in DIRECTIONS}
            self._pump = Pump(shared, config.seed, clock, cells, queues)
            self.shapers = self._pump.shapers
            self._meters = {each: TrafficMeter(shared[each]) for each in DIRECTIONS}
            self._cell_meters = {
                each: {name: TrafficMeter(cell.rate) for name, cell in of_way.items()}
                for each, of_way in cells.items()
            }
            self.devices = {
                each.client: DeviceLink(
                    each, config.seed, self.shapers, config.shared.path(each.shape.cell)
                )
                for each in config.devices
            }
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._ports = DevicePorts(self._pump, _address(config.upstream), clock, connections)

    def connections_of(self, device: DeviceLink) -> list[RelayedConnection]:
        """The open connections of a device."""
        return self._ports.connections_of(device)

    @property
    def upstream(self) -> tuple[str, int]:
        """Host and port of the server to which new connections go."""
        return self._ports.upstream

    @property
    def opened(self) -> int:
        """Number of connections that devices have opened."""
        return self._ports.opened.total()

    def listen(self) -> dict[str, int]:
        """Open a port for every device; return the ports by client.

        Raises:
            OSError: a port cannot be opened.
        """
        first, again = self.config.first_port, self.config.again
        ports = {}
        for number, device in enumerate(self.devices.values(), start=1):
            port = first + number if first else 0
            port = again.devices[device.client] if again else port
            ports[device.client] = self._ports.open(device, self.config.host, port)
        return ports

    def close(self) -> None:
        """Close everything at once."""
        self._ports.close()
        for device in self.devices.values():
            for connection in self.connections_of(device):
                connection.abort()
        self._pump.close()

    # -- requests of controllers ----------------------------------------------------------------

    def select_devices(self, clients: Collection[str] | None) -> list[DeviceLink]:
        """The links of the devices `clients`; None: of all devices.

        Raises:
            ConfigError: a client has no device behind this gateway.
        """
        if clients is None:
            return list(self.devices.values())
        unknown = [client for client in clients if client not in self.devices]
        if unknown:
            raise ConfigError(
                f"group {self.config.group!r} has no client {unknown[0]!r} behind this gateway"
            )
        return [self.devices[client] for client in clients]

    def set_shapes(self, shapes: Mapping[str, Shape]) -> None:
        """Change the shapes of devices' links from now on.

        Args:
            shapes: the new shapes, by client.

        Raises:
            ConfigError: a shape is impossible; nothing was changed.
        """
        try:
            made = [(self.devices[each], shape) for each, shape in shapes.items()]
            changes = [(device, shape, device.links(shape)) for device, shape in made]
        except ValueError as error:
            raise ConfigError(str(error)) from None
        now = self._pump.now()
        for device, shape, links in changes:
            device.shape = shape
            for each, link in links.items():
                self.shapers[each].change(device.lanes[each], link, now)
                device.meters[each].change(device.rate(each), now)
        self._changed(device for device, _, _ in changes)

    def set_shared(self, state: SharedState) -> None:
        """Change what holds on the shared link from now on."""
        now = self._pump.now()
        self._shared = state
        for each in DIRECTIONS:
            rate = self._shared_rate(each)
            lanes = [device.lanes[each] for device in self.devices.values()]
            self.shapers[each].share(rate, lanes, now, state.limited)
            self._meters[each].change(rate, now)
        self._changed(self.devices.values())

    def fault(self, devices: Iterable[DeviceLink], fault: Fault) -> None:
        """Begin a fault on the links of some devices."""
        devices = list(devices)
        for device in devices:
            device.active_faults.add(fault)
            if fault.fault == "quota":
                assert fault.direction is not None
                device.quota_from[fault.direction] = device.delivered[fault.direction]
                device.active_faults.spent.discard(fault.direction)
            for connection in self.connections_of(device):
                self._strike(connection, fault)
        self._changed(devices)
        if fault.fault == "flap":
            self._flap(devices, fault, down=True)
        if fault.for_s is not None:
            self._pump.loop.call_later(fault.for_s, self._expire, devices, fault)

    def heal(
        self,
        devices: Iterable[DeviceLink],
        name: FaultName | None = None,
        direction: Direction | None = None,
    ) -> None:
        """Heal the faults with this name, or all (None), on the links of some devices, in one
        direction or both (None)."""
        devices = list(devices)
        for device in devices:
            device.active_faults.heal(name, direction)
        self._healed(devices)

    def restore(self) -> bool:
        """Heal all faults and restore the links with which the gateway started. Return whether this
        changed anything."""
        devices = self.devices.values()
        others = {
            each.client: each.initial_shape for each in devices if each.shape != each.initial_shape
        }
        wrong = [device for device in devices if device.active_faults]
        if wrong:
            self.heal(wrong)
        if others:
            self.set_shapes(others)
        if changed := self._shared != SharedState():
            self.set_shared(SharedState())
        return bool(wrong or others or changed)

    def set_upstream(self, address: str) -> None:
        """Connect new connections to the server at `address` from now on.

        Raises:
            ConfigError: `address` is not host:port.
        """
        self._ports.upstream = _address(address)

    def stats(self, clients: Collection[str] | None = None) -> dict[str, Any]:
        """What the links of the devices `clients` (None: all) and the shared link have measured.

        Raises:
            ConfigError: a client has no device behind this gateway.
        """
        now = self._pump.now()
        return {
            "at": self._clock.monotonic(),
            "began": self._pump.began,
            "wakes": self._pump.wakes,
            "late_s": self._pump.late_s,
            "shared": {each: {"capacity": self._meters[each].bytes(now)} for each in DIRECTIONS},
            "cells": self._cells(now),
            "devices": {
                device.client: {
                    **device.stats(now),
                    "connections": len(self.connections_of(device)),
                    "struck": device.struck,
                }
                for device in self.select_devices(clients)
            },
        }

    def _cells(self, now: float) -> dict[str, dict[Direction, dict[str, float | None]]]:
        """What the devices of each cell have received and sent, and what its rate allowed."""
        moved = {each: dict.fromkeys(meters, 0) for each, meters in self._cell_meters.items()}
        for device in self.devices.values():
            for cell in self.config.shared.path(device.shape.cell):
                for each in DIRECTIONS:
                    moved[each][cell] += device.delivered[each]
        return {
            cell: {
                each: {
                    "bytes": moved[each][cell],
                    "capacity": self._cell_meters[each][cell].bytes(now),
                }
                for each in DIRECTIONS
            }
            for cell in self.config.shared.cells
        }

    def _shared_rate(self, direction: Direction) -> Rate:
        """The rate of the shared link as it is now."""
        if not self._shared.limited:
            return Unlimited()
        return rate_of_limit(self.config.shared.limit(direction), *self._shared.of(direction))

    def _strike(self, connection: RelayedConnection, fault: Fault) -> None:
        match fault.fault:
            case "limit":
                assert fault.direction is not None
                half = connection.halves[fault.direction]
                half.limit_from = half.delivered
                return  # it strikes with the last byte
            case "quota" | "flap":
                return
            case "offline":
                connection.close()
            case "blackhole":
                connection.freeze()
            case "reset":
                connection.abort()
            case "cut":
                assert fault.direction is not None
                connection.halves[fault.direction].lose()
        connection.device.struck += 1

    def _flap(self, devices: Collection[DeviceLink], fault: Fault, down: bool) -> None:
        """Let links that still flap be down, or up again, for the time of the fault."""
        flapping = [
            device for device in devices if device.active_faults.faults.get(fault.key) is fault
        ]
        if not flapping:
            return
        name: FaultName = "blackhole" if fault.silent else "offline"
        for device in flapping:
            device.active_faults.down = name if down else None
            for connection in self.connections_of(device) if down else ():
                self._strike(connection, Fault(fault=name))
        self._healed(flapping)
        lasts_s = fault.down_s if down else fault.up_s
        assert lasts_s is not None
        self._pump.loop.call_later(lasts_s, self._flap, flapping, fault, not down)

    def _expire(self, devices: list[DeviceLink], fault: Fault) -> None:
        self._healed([device for device in devices if device.active_faults.expire(fault)])

    def _healed(self, devices: Collection[DeviceLink]) -> None:
        for device in devices:
            active = device.active_faults
            for connection in self.connections_of(device):
                halves = connection.halves
                lost = any(halves[each].lost and not active.cut(each) for each in DIRECTIONS)
                if lost or (connection.frozen and not active.blackhole):
                    connection.abort()
        self._changed(devices)

    def _changed(self, devices: Iterable[DeviceLink]) -> None:
        """Apply a change of links or faults to the connections of these devices."""
        for device in devices:
            device.update_plain(self.shapers)
            for connection in self.connections_of(device):
                connection.fit_buffers()
                if connection.established:
                    for half in connection.halves.values():
                        half.relieve()
        for each in DIRECTIONS:
            self._pump.pump(each)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"expected host:port of the server, found {text!r}")
    return host.strip("[]"), int(port)
