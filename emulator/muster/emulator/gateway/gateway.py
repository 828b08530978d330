"""The access network of a group of devices: a port for each, shaped, cut and counted.

The driver: it moves bytes and looks at the clock, and decides nothing. What a link does to bytes is
in `shaping`, how its rate varies in `rates`, what can go wrong in `faults`, one connection in
`relay`; what is asked over the control port is understood in `control`.
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
"""What is due within it is delivered: uvloop and epoll wake by the millisecond."""

_DIAL_S = 10.0
_BACKLOG = 64
_ACCEPT_AGAIN_S = 0.5


class TrafficMeter:
    """What a rate could have moved since the gateway began, whatever rates there were."""

    def __init__(self, rate: Rate) -> None:
        self._rate, self._since, self._before = rate, 0.0, 0.0

    def change(self, rate: Rate, now: float) -> None:
        self._before += self._rate.capacity(self._since, now)
        self._rate, self._since = rate, now

    def bytes(self, now: float) -> float | None:
        """None: for a time there was no limit."""
        total = self._before + self._rate.capacity(self._since, now)
        return None if math.isinf(total) else total


class DeviceLink:
    """A device's link, and what goes through it.

    Attributes:
        plain: by direction, whether bytes go straight through.
        fitted: a socket of it has had a size of buffers set.
    """

    def __init__(self, settings: GatewayDevice, gateway: "Gateway") -> None:
        self.client, self.began_with, self.shape = settings.client, settings.shape, settings.shape
        self._seed = gateway.seed
        self.standing = ActiveFaults()
        self.connections: set[RelayedConnection] = set()
        self.opened = 0
        self.read = dict.fromkeys(DIRECTIONS, 0)
        self.delivered = dict.fromkeys(DIRECTIONS, 0)
        ways = self.ways(self.shape)
        self.lanes = {
            each: gateway.shapers[each].lane(self.client, ways[each]) for each in DIRECTIONS
        }
        self.meters = {each: TrafficMeter(ways[each].rate) for each in DIRECTIONS}
        self.plain = dict.fromkeys(DIRECTIONS, True)
        self.fitted = False
        self.look(gateway)

    def ways(self, shape: Shape) -> dict[Direction, DirectionalLink]:
        """What a shape makes of both directions.

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

    def look(self, gateway: "Gateway") -> None:
        """See whether bytes may go straight through."""
        for each in DIRECTIONS:
            unshared = math.isinf(gateway.shapers[each].shared.mean)
            self.plain[each] = self.lanes[each].way.plain and unshared and not self.standing

    def rate_bytes(self, direction: Direction) -> float:
        """Bytes per second of its own link."""
        return self.lanes[direction].way.rate.mean


class Gateway:
    """The gateway of a group.

    Args:
        config: what it is started with; `ready` and tokens are not its business.
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
        """Open a port for every device; the ports by client.

        Raises:
            OSError: they cannot be opened.
        """
        ports, first, again = {}, self.config.first_port, self.config.again
        for number, device in enumerate(self.devices.values(), start=1):
            listener = socket.socket(_family(self.config.host), socket.SOCK_STREAM)
            self._listeners.append(listener)
            listener.setblocking(False)
            fit_buffers(listener, device)  # what it accepts has its buffers
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
        """Let the link work until now, and deliver what is due."""
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
        """Have `pump` called when something is to be done; early is no harm."""
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
            self.loop.remove_reader(listener)  # it would be asked again at once, and for ever
            self.loop.call_later(_ACCEPT_AGAIN_S, self._listen_on, listener, device)
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        device.opened += 1
        connection = RelayedConnection(self, device, device.opened, accepted)
        connection.fit_buffers()
        device.connections.add(connection)
        if device.standing.offline:
            connection.close()
        elif device.standing.blackhole:
            connection.freeze()
        else:
            for each in DIRECTIONS:
                if device.standing.cut(each):
                    connection.halves[each].lose()
            dial = self.loop.create_task(self._dial(connection))
            self._dials.add(dial)
            dial.add_done_callback(self._dials.discard)

    def _listen_on(self, listener: socket.socket, device: DeviceLink) -> None:
        if listener.fileno() >= 0:
            self.loop.add_reader(listener, self._accept, listener, device)

    async def _dial(self, connection: RelayedConnection) -> None:
        """Connect to the server; a device whose server does not answer is reset."""
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
                log.warning("%s: no way to %s:%d: %s", connection.device.client, host, port, why)
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

    # -- what is asked --------------------------------------------------------------------------

    def select_devices(self, clients: Collection[str] | None) -> list[DeviceLink]:
        """The devices called `clients`; None: all.

        Raises:
            ConfigError: there is no such device here.
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
        """Give devices other links, from now on.

        Raises:
            ConfigError: a link cannot be; nothing was changed.
        """
        try:
            made = [(self.devices[each], shape) for each, shape in shapes.items()]
            changes = [(device, shape, device.ways(shape)) for device, shape in made]
        except ValueError as error:
            raise ConfigError(str(error)) from None
        now = self.now()
        for device, shape, ways in changes:
            device.shape = shape
            for each, way in ways.items():
                self.shapers[each].change(device.lanes[each], way, now)
                device.meters[each].change(way.rate, now)
        self._changed(device for device, _, _ in changes)

    def set_shared(self, down_bps: float | None, up_bps: float | None) -> None:
        """Give the group other shared rates, from now on; None: no limit."""
        now = self.now()
        self._rates = {"down": down_bps, "up": up_bps}
        for each in DIRECTIONS:
            rate = _constant(self._rates[each])
            lanes = [device.lanes[each] for device in self.devices.values()]
            self.shapers[each].share(rate, lanes, now)
            self._meters[each].change(rate, now)
        self._changed(self.devices.values())

    def fault(self, devices: Iterable[DeviceLink], fault: Fault) -> None:
        """Have something go wrong."""
        devices = list(devices)
        for device in devices:
            device.standing.add(fault)
            for connection in list(device.connections):
                self._strike(connection, fault)
        self._changed(devices)
        if fault.for_s is not None:
            self.loop.call_later(fault.for_s, self._expire, devices, fault)

    def heal(self, devices: Iterable[DeviceLink], name: FaultName | None = None) -> None:
        """Put right what has a name, or everything."""
        devices = list(devices)
        for device in devices:
            device.standing.heal(name)
        self._healed(devices)

    def restore(self) -> bool:
        """Heal everything and go back to the links it was started with; whether that changed
        anything."""
        devices = self.devices.values()
        shared = self.config.shared
        as_begun = {"down": shared.down_bps, "up": shared.up_bps}
        others = {each.client: each.began_with for each in devices if each.shape != each.began_with}
        wrong = [device for device in devices if device.standing]
        if wrong:
            self.heal(wrong)
        if others:
            self.set_shapes(others)
        if changed := self._rates != as_begun:
            self.set_shared(shared.down_bps, shared.up_bps)
        return bool(wrong or others or changed)

    def set_upstream(self, address: str) -> None:
        """Dial another server from now on.

        Raises:
            ConfigError: this is no host:port.
        """
        self.upstream = _address(address)

    def stats(self) -> dict[str, Any]:
        """What has been delivered, and what could have been, since it began."""
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
        self._healed([device for device in devices if device.standing.expire(fault)])

    def _healed(self, devices: Collection[DeviceLink]) -> None:
        for device in devices:
            standing = device.standing
            for connection in list(device.connections):
                halves = connection.halves
                lost = any(halves[each].lost and not standing.cut(each) for each in DIRECTIONS)
                if lost or (connection.frozen and not standing.blackhole):
                    connection.abort()
        self._changed(devices)

    def _changed(self, devices: Iterable[DeviceLink]) -> None:
        """Have sockets and reading follow what changed."""
        for device in devices:
            device.look(self)
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
