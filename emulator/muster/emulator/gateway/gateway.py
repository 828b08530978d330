"""The access network of a group of devices: a port for each device, whose traffic is shaped, cut
and counted.

This module is the driver: it moves bytes and reads the clock, but decides nothing.
- `shaping` computes what a link does to bytes.
- `rates` computes how the rate of a link varies.
- `faults` defines what can go wrong.
- `relay` handles one connection.
- `control` handles requests over the control port.
"""

import asyncio
import ipaddress
import logging
import math
import socket
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import ConfigError
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess
from muster.emulator.gateway.faults import ActiveFaults, Fault, FaultName
from muster.emulator.gateway.rates import ConstantRate, Direction, Rate, Unlimited, loss_of, rate_of
from muster.emulator.gateway.relay import DIRECTIONS, Half, RelayedConnection, fit_buffers
from muster.emulator.gateway.shaping import DirectionalLink, Shaper
from muster.emulator.links.settings import Shape

log = logging.getLogger("muster.gateway")

_SLACK_S = 0.0005
"""Bytes that are due within this time are delivered now, because uvloop and epoll wake up only at
whole milliseconds."""

_DIAL_S = 10.0
_BACKLOG = 64
_ACCEPT_AGAIN_S = 0.5


class TrafficMeter:
    """Measures how many bytes a link could have carried since the gateway began, across all changes
    of its rate."""

    def __init__(self, rate: Rate) -> None:
        self._rate, self._since, self._before = rate, 0.0, 0.0

    def change(self, rate: Rate, now: float) -> None:
        self._before += self._rate.capacity(self._since, now)
        self._rate, self._since = rate, now

    def bytes(self, now: float) -> float | None:
        """Bytes until `now`; None: at some time there was no limit."""
        total = self._before + self._rate.capacity(self._since, now)
        return None if math.isinf(total) else total


class DeviceLink:
    """A device's link, with its connections and counters.

    Attributes:
        plain: by direction, whether bytes bypass the shaper.
        fitted: whether the buffer size of one of its sockets has been set.
    """

    def __init__(self, settings: GatewayDevice, gateway: "Gateway") -> None:
        self.client, self.initial_shape, self.shape = (
            settings.client,
            settings.shape,
            settings.shape,
        )
        self._seed = gateway.seed
        self.active_faults = ActiveFaults()
        self.connections: set[RelayedConnection] = set()
        self.opened = 0
        self.read = dict.fromkeys(DIRECTIONS, 0)
        self.delivered = dict.fromkeys(DIRECTIONS, 0)
        links = self.links(self.shape)
        self.lanes = {
            each: gateway.shapers[each].lane(self.client, links[each]) for each in DIRECTIONS
        }
        self.meters = {each: TrafficMeter(links[each].rate) for each in DIRECTIONS}
        self.plain = dict.fromkeys(DIRECTIONS, True)
        self.fitted = False
        self.update_plain(gateway)

    def links(self, shape: Shape) -> dict[Direction, DirectionalLink]:
        """The link of both directions for a shape.

        Raises:
            ValueError: a trace cannot be read.
        """
        loss = loss_of(shape)
        return {
            each: DirectionalLink(
                rate_of(shape, each, self._seed, self.client), shape.rtt_s / 2, shape.jitter_s, loss
            )
            for each in DIRECTIONS
        }

    def update_plain(self, gateway: "Gateway") -> None:
        """Update whether bytes may bypass the shaper."""
        for each in DIRECTIONS:
            unshared = math.isinf(gateway.shapers[each].shared.mean)
            self.plain[each] = self.lanes[each].link.plain and unshared and not self.active_faults

    def rate_bytes(self, direction: Direction) -> float:
        """Mean rate of the device's own link, bytes per second."""
        return self.lanes[direction].link.rate.mean


class Gateway:
    """The gateway of a group.

    Args:
        config: the gateway's settings; `ready` and the tokens are not used here.
    """

    def __init__(self, config: GatewayProcess, clock: Clock) -> None:
        self.config, self.seed, self._clock = config, config.seed, clock
        self.loop = asyncio.get_running_loop()
        self._began = clock.monotonic()
        self.upstream = _address(config.upstream)
        self._rates = {"down": config.shared.down_bps, "up": config.shared.up_bps}
        shared = {each: _constant(self._rates[each]) for each in DIRECTIONS}
        self.shapers = {each: Shaper(shared[each], config.seed) for each in DIRECTIONS}
        self._meters = {each: TrafficMeter(shared[each]) for each in DIRECTIONS}
        self._timers: dict[Direction, tuple[float, asyncio.TimerHandle]] = {}
        try:
            self.devices = {each.client: DeviceLink(each, self) for each in config.devices}
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._listeners: list[socket.socket] = []
        self._dials: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        """Seconds since the gateway began."""
        return self._clock.monotonic() - self._began

    def listen(self) -> dict[str, int]:
        """Open a port for every device; return the ports by client.

        Raises:
            OSError: a port cannot be opened.
        """
        ports, first, again = {}, self.config.first_port, self.config.again
        for number, device in enumerate(self.devices.values(), start=1):
            listener = socket.socket(_family(self.config.host), socket.SOCK_STREAM)
            self._listeners.append(listener)
            listener.setblocking(False)
            fit_buffers(listener, device)  # accepted sockets inherit its buffer sizes
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port = first + number if first else 0
            listener.bind((self.config.host, again.devices[device.client] if again else port))
            listener.listen(_BACKLOG)
            self._listen_on(listener, device)
            ports[device.client] = listener.getsockname()[1]
        return ports

    def close(self) -> None:
        """Close everything at once."""
        for listener in self._listeners:
            self.loop.remove_reader(listener)
            listener.close()
        for device in self.devices.values():
            for connection in list(device.connections):
                connection.abort()
        for dial in self._dials:
            dial.cancel()
        for _, timer in self._timers.values():
            timer.cancel()

    # -- bytes ----------------------------------------------------------------------------------

    def pump(self, direction: Direction) -> None:
        """Advance the shaper to the current time, and deliver the bytes that are due."""
        shaper = self.shapers[direction]
        due, served = shaper.advance(self.now() + _SLACK_S)
        halves: dict[Half, None] = {}
        for flow, nbytes in due:
            half: Any = flow.owner
            if not flow.gone:
                half.deliver(nbytes)
                halves[half] = None
        for half in halves:
            if not half.flow.gone:
                half.flush()
        for flow in served:
            if not flow.gone:
                half = flow.owner
                half.relieve()
        self._arm(direction)

    def _arm(self, direction: Direction) -> None:
        """Set a timer that calls `pump` at the next event. A call that comes early does no harm."""
        at = self.shapers[direction].next()
        armed = self._timers.get(direction)
        if armed is not None:
            if armed[0] <= at and not armed[1].cancelled():
                return
            armed[1].cancel()
            del self._timers[direction]
        if not math.isinf(at):
            delay = max(0.0, at - self.now())
            timer = self.loop.call_later(delay, self._woken, direction)
            self._timers[direction] = at, timer

    def _woken(self, direction: Direction) -> None:
        self._timers.pop(direction, None)
        self.pump(direction)

    def _accept(self, listener: socket.socket, device: DeviceLink) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.error("%s: a connection cannot be accepted: %s", device.client, error)
            self.loop.remove_reader(listener)  # else the loop would call this again and again
            self.loop.call_later(_ACCEPT_AGAIN_S, self._listen_on, listener, device)
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        device.opened += 1
        connection = RelayedConnection(self, device, device.opened, accepted)
        connection.fit_buffers()
        device.connections.add(connection)
        if device.active_faults.offline:
            connection.close()
        elif device.active_faults.blackhole:
            connection.freeze()
        else:
            for each in DIRECTIONS:
                if device.active_faults.cut(each):
                    connection.halves[each].lose()
            dial = self.loop.create_task(self._dial(connection))
            self._dials.add(dial)
            dial.add_done_callback(self._dials.discard)

    def _listen_on(self, listener: socket.socket, device: DeviceLink) -> None:
        if listener.fileno() >= 0:
            self.loop.add_reader(listener, self._accept, listener, device)

    async def _dial(self, connection: RelayedConnection) -> None:
        """Connect to the server; if it does not answer, reset the device's connection."""
        host, port = self.upstream
        upstream = None
        try:
            async with asyncio.timeout(_DIAL_S):
                family, address = await self._resolved(host, port)
                upstream = socket.socket(family, socket.SOCK_STREAM)
                upstream.setblocking(False)
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                fit_buffers(upstream, connection.device)
                await self.loop.sock_connect(upstream, address)
        except (OSError, TimeoutError) as error:
            if upstream is not None:
                upstream.close()
            if not (connection.closed or connection.frozen):
                why = error.strerror if isinstance(error, OSError) and error.strerror else "silent"
                name = connection.device.client
                log.warning("%s: cannot connect to %s:%d: %s", name, host, port, why)
                connection.abort()
        except asyncio.CancelledError:
            if upstream is not None:
                upstream.close()
            raise
        else:
            connection.establish(upstream)

    async def _resolved(self, host: str, port: int) -> tuple[int, Any]:
        try:
            return _family(host), (str(ipaddress.ip_address(host)), port)
        except ValueError:
            found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return found[0][0], found[0][4]

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
        now = self.now()
        for device, shape, links in changes:
            device.shape = shape
            for each, link in links.items():
                self.shapers[each].change(device.lanes[each], link, now)
                device.meters[each].change(link.rate, now)
        self._changed(device for device, _, _ in changes)

    def set_shared(self, down_bps: float | None, up_bps: float | None) -> None:
        """Change the shared rates of the group from now on; None: no limit."""
        now = self.now()
        self._rates = {"down": down_bps, "up": up_bps}
        for each in DIRECTIONS:
            rate = _constant(self._rates[each])
            lanes = [device.lanes[each] for device in self.devices.values()]
            self.shapers[each].share(rate, lanes, now)
            self._meters[each].change(rate, now)
        self._changed(self.devices.values())

    def fault(self, devices: Iterable[DeviceLink], fault: Fault) -> None:
        """Begin a fault on the links of some devices."""
        devices = list(devices)
        for device in devices:
            device.active_faults.add(fault)
            for connection in list(device.connections):
                self._strike(connection, fault)
        self._changed(devices)
        if fault.for_s is not None:
            self.loop.call_later(fault.for_s, self._expire, devices, fault)

    def heal(self, devices: Iterable[DeviceLink], name: FaultName | None = None) -> None:
        """Heal the faults with this name, or all (None), on the links of some devices."""
        devices = list(devices)
        for device in devices:
            device.active_faults.heal(name)
        self._healed(devices)

    def restore(self) -> bool:
        """Heal all faults and restore the links with which the gateway started. Return whether this
        changed anything."""
        devices = self.devices.values()
        shared = self.config.shared
        initial_rates = {"down": shared.down_bps, "up": shared.up_bps}
        others = {
            each.client: each.initial_shape for each in devices if each.shape != each.initial_shape
        }
        wrong = [device for device in devices if device.active_faults]
        if wrong:
            self.heal(wrong)
        if others:
            self.set_shapes(others)
        if changed := self._rates != initial_rates:
            self.set_shared(shared.down_bps, shared.up_bps)
        return bool(wrong or others or changed)

    def set_upstream(self, address: str) -> None:
        """Connect new connections to the server at `address` from now on.

        Raises:
            ConfigError: `address` is not host:port.
        """
        self.upstream = _address(address)

    def stats(self) -> dict[str, Any]:
        """Bytes that were and that could have been delivered since the gateway began."""
        now = self.now()
        return {
            "at": self._clock.monotonic(),
            "shared": {each: {"capacity": self._meters[each].bytes(now)} for each in DIRECTIONS},
            "devices": {
                device.client: {
                    **{
                        each: {
                            "bytes": device.delivered[each],
                            "capacity": device.meters[each].bytes(now),
                        }
                        for each in DIRECTIONS
                    },
                    "connections": len(device.connections),
                }
                for device in self.devices.values()
            },
        }

    def _strike(self, connection: RelayedConnection, fault: Fault) -> None:
        match fault.fault:
            case "offline":
                connection.close()
            case "blackhole":
                connection.freeze()
            case "reset":
                connection.abort()
            case "cut":
                assert fault.direction is not None
                connection.halves[fault.direction].lose()
            case "limit":
                assert fault.direction is not None
                half = connection.halves[fault.direction]
                half.limit_from = half.delivered

    def _expire(self, devices: list[DeviceLink], fault: Fault) -> None:
        self._healed([device for device in devices if device.active_faults.expire(fault)])

    def _healed(self, devices: Collection[DeviceLink]) -> None:
        for device in devices:
            active = device.active_faults
            for connection in list(device.connections):
                halves = connection.halves
                lost = any(halves[each].lost and not active.cut(each) for each in DIRECTIONS)
                if lost or (connection.frozen and not active.blackhole):
                    connection.abort()
        self._changed(devices)

    def _changed(self, devices: Iterable[DeviceLink]) -> None:
        """Apply a change of links or faults to the connections of these devices."""
        for device in devices:
            device.update_plain(self)
            for connection in list(device.connections):
                connection.fit_buffers()
                if connection.established:
                    for half in connection.halves.values():
                        half.relieve()
        for each in DIRECTIONS:
            self.pump(each)


def _constant(bps: float | None) -> Rate:
    return Unlimited() if bps is None else ConstantRate(bps / 8)


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"expected host:port of the server, found {text!r}")
    return host.strip("[]"), int(port)
