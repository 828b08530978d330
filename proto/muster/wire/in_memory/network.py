"""The network of a simulation: hosts, connections and their frames."""

import asyncio
import contextvars
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Protocol

from muster.wire.in_memory.frames import Frame, FrameKind


class FrameFate(Enum):
    """The fate of a frame that is about to arrive."""

    ARRIVES = "arrives"
    BREAKS_BEFORE = "the connection breaks before it arrives"
    BREAKS_AFTER = "the connection breaks right after it arrived"
    VANISHES = "the connection carries nothing any more, and neither end is told"


class Weather(Protocol):
    """Decides how long frames take and which connections break."""

    def delay_s(self, source: str, target: str) -> float:
        """Seconds that a frame takes, and that an end takes to notice a broken connection."""
        ...

    def reachable(self, source: str, target: str) -> bool:
        """Whether a connection can be made now."""
        ...

    def judge(self, source: str, target: str, method: str, frame: Frame) -> FrameFate:
        """The fate of a frame that is about to arrive."""
        ...


class Calm:
    """Weather in which nothing takes time and nothing breaks."""

    def delay_s(self, source: str, target: str) -> float:
        return 0.0

    def reachable(self, source: str, target: str) -> bool:
        return True

    def judge(self, source: str, target: str, method: str, frame: Frame) -> FrameFate:
        return FrameFate.ARRIVES


class End(Protocol):
    """One end of a connection."""

    def receive(self, frame: Frame) -> None: ...

    def lose(self) -> None:
        """The connection is gone."""
        ...


class Listener(Protocol):
    """A server that listens in the network."""

    @property
    def host(self) -> str: ...

    def accept(self, connection: "InMemoryConnection") -> "End": ...


class InMemoryNetwork:
    """A network of hosts that reach each other by name; an address is host:port.

    Attributes:
        sent: number of frames that each host has sent.

    Args:
        weather: decides delays and failures; None: `Calm`.
        keepalive_s: seconds after which both ends notice that a connection carries nothing.
        loop: the event loop on which everything happens; None: the running loop.
    """

    def __init__(
        self,
        weather: Weather | None = None,
        keepalive_s: float = 40.0,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.weather = weather or Calm()
        self.keepalive_s = keepalive_s
        self.loop = loop or asyncio.get_running_loop()
        # Frames belong to no process, so killing a process does not stop frames that it has sent.
        self.context = contextvars.copy_context()
        self.connections: list[InMemoryConnection] = []
        self.free_ports = count(40_000)
        self.sent = Counter[str]()
        self._listening: dict[str, Listener] = {}

    def listen(self, address: str, server: Listener) -> bool:
        """Let `server` listen at `address`; return whether the address was free."""
        return self._listening.setdefault(address, server) is server

    def unlisten(self, server: Listener) -> None:
        """Free the server's addresses."""
        taken = [address for address, there in self._listening.items() if there is server]
        for address in taken:
            del self._listening[address]

    def connect(self, source: str, address: str, client: End) -> "InMemoryConnection | None":
        """A connection to the server that listens at `address`; None if none does."""
        server = self._listening.get(address)
        if server is None or not self.weather.reachable(source, server.host):
            return None
        connection = InMemoryConnection(self, source, server.host)
        connection.ends = client, server.accept(connection)
        self.connections.append(connection)
        return connection

    def kill(self, host: str, sent: bool = False) -> None:
        """End a host: it no longer listens, and its connections break.

        Args:
            sent: what it has sent to clients arrives before.
        """
        gone = [address for address, there in self._listening.items() if there.host == host]
        for address in gone:
            del self._listening[address]
        if not sent:
            self.cut(host)
            return
        for connection in list(self.connections):
            if connection.hosts[1] == host:
                connection.close()

    def cut(self, host: str) -> None:
        """Break all connections of a host."""
        for connection in list(self.connections):
            if host in connection.hosts:
                connection.break_()


class InMemoryConnection:
    """One TCP connection: two ordered pipes.

    Attributes:
        hosts: names of the client's and of the server's host.
        ends: the client's and the server's end; each receives what the other sends.
        methods: methods of the calls on the connection, by stream.
    """

    ends: tuple[End, End]

    def __init__(self, network: InMemoryNetwork, client: str, server: str) -> None:
        self.hosts = client, server
        self.methods: dict[int, str] = {}
        self.open = True
        self._network = network
        self._silent = self._closing = False
        self._pipes = deque[Frame](), deque[Frame]()

    def send(self, target: int, frame: Frame) -> None:
        """Put a frame on the pipe to the end `target` (0: the client)."""
        if not self.open:
            return
        self._network.sent[self.hosts[1 - target]] += 1
        pipe = self._pipes[target]
        pipe.append(frame)
        if len(pipe) == 1:
            self._later(self._arrive, target)

    def _later(self, call: Callable[[int], None], target: int) -> None:
        network = self._network
        delay_s = network.weather.delay_s(self.hosts[1 - target], self.hosts[target])
        network.loop.call_later(delay_s, call, target, context=network.context)

    def _arrive(self, target: int) -> None:
        if not self.open or self._silent:
            return
        pipe = self._pipes[target]
        frame = pipe[0]
        method = self.methods.get(frame.stream, "")
        source, there = self.hosts[1 - target], self.hosts[target]
        verdict = self._network.weather.judge(source, there, method, frame)
        if verdict is FrameFate.VANISHES:
            self._silent = True
            network = self._network
            network.loop.call_later(network.keepalive_s, self.break_, context=network.context)
            return
        if verdict is not FrameFate.BREAKS_BEFORE:
            pipe.popleft()
            self.ends[target].receive(frame)
        if verdict is not FrameFate.ARRIVES or (self._closing and not self._pipes[0]):
            self.break_()
        elif pipe:
            self._later(self._arrive, target)

    def close(self) -> None:
        """Break once everything that was sent to the client has arrived."""
        self._closing = True
        if not self._pipes[0]:
            self.break_()

    def break_(self) -> None:
        """Break the connection and lose its frames; each end notices after the weather's delay."""
        if self.open:
            self.open = False
            self._network.connections.remove(self)
            for target in (0, 1):
                self._later(self._lose, target)

    def _lose(self, target: int) -> None:
        self.ends[target].lose()


__all__ = [
    "Calm",
    "End",
    "FrameFate",
    "FrameKind",
    "InMemoryConnection",
    "InMemoryNetwork",
    "Weather",
]
