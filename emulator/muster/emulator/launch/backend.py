"""What brings a run's programs to life: processes of this machine, or containers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from muster.client.config import NurseryProcess, PackProcess
from muster.common.clock import Clock
from muster.common.errors import LaunchFailed
from muster.emulator.gateway.config import GatewayProcess, Ports
from muster.emulator.scenario.scenario import Scenario
from muster.server.config import ServerProcess

Died = Callable[[str, int], None]
"""Told of every death of a program that was ready, or that is never waited for: what died
("server", a gateway's or a pack's name …) and its exit status, negative for a signal."""


class EndedBeforeReady(LaunchFailed):
    """A program ended while it started. Only this error says so; `Died` is not told.

    Attributes:
        name, status: as `Died` is told of a death.

    Args:
        last_lines: the end of the program's log, for the message.
    """

    def __init__(self, name: str, status: int, last_lines: str) -> None:
        super().__init__(f"the {name} {ending(status)} before it was ready{last_lines}")
        self.name, self.status = name, status


def ending(status: int) -> str:
    """How a program ended, for a message."""
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"ended unasked {how}"


BackendName = Literal["processes", "docker"]


class Backend(Protocol):
    """Starts programs, tells of their deaths, and leaves nothing behind.

    Attributes:
        isolates: devices have no way to the server but through a gateway.
        devices: folder of the devices' states, as they see it.
    """

    isolates: bool
    devices: str

    @property
    def here(self) -> str:
        """This machine's address, for gateways."""
        ...

    def reachable_ports(self, group: str, ports: Ports) -> Ports:
        """Where the gateway of a group listens for its devices, as this machine reaches it."""
        ...

    @property
    def alive(self) -> Mapping[str, int]:
        """Process ids of what lives, by name."""
        ...

    @property
    def placeable(self) -> Mapping[str, int]:
        """Process ids, by name, of what may be placed on cores of this machine."""
        ...

    def with_addresses(self, server: ServerProcess) -> ServerProcess:
        """The server's settings, with where it listens and what runs beside it."""
        ...

    async def start_nursery(self, config: NurseryProcess) -> dict[str, Any]:
        """Have the task prepared; what was learned of it: `examples`, `schema`.

        Raises:
            EndedBeforeReady: the nursery died; it can be started again.
            LaunchFailed: the task cannot be prepared, or it takes too long.
        """
        ...

    async def start_gateway(self, config: GatewayProcess) -> Ports:
        """Start the gateway of a group; where it listens. One that is started again, with
        `config.again`, listens where it did.

        Raises:
            EndedBeforeReady: it died before its ports were open; it can be started again.
            LaunchFailed: it takes too long.
        """
        ...

    async def start_server(self) -> str:
        """Start the server in the run folder; its address, host:port, as gateways and devices know
        it.

        Raises:
            EndedBeforeReady: it died before its port answered; it can be started again.
            LaunchFailed: it takes too long.
        """
        ...

    async def start_evaluation(self) -> None:
        """Start the evaluation where it is no child of the server, and none lives."""
        ...

    async def start_packs(self, configs: Sequence[PackProcess]) -> None:
        """Start packs of devices, or start them again. Packs that share a container start
        together, whichever of them is asked for."""
        ...

    def stop_server(self) -> None:
        """Ask the server to end the run as stopped."""
        ...

    async def close(self) -> None:
        """End whatever still lives, and wait until it is gone."""
        ...

    def last_lines(self, name: str) -> str:
        """The end of a program's log, for a message."""
        ...


MakeBackend = Callable[[Scenario, Path, Clock, Died], Backend]
