"""The interface of backends, which start a run's programs as processes or as containers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from muster.client.processes.config import NurseryProcess, PackProcess
from muster.common.clock import Clock
from muster.common.errors import LaunchFailed
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.gateway.config import GatewayProcess, Ports
from muster.emulator.run_folder.limits import Limited
from muster.emulator.scenario.scenario import Scenario
from muster.server.settings.process import ServerProcess

Died = Callable[[str, int], None]
"""Callback for the death of a program, with its name ("server", the name of a gateway or a pack, …)
and its exit status, which is negative for a signal. It is called for programs that were ready, and
for programs whose start the backend does not wait for."""


class EndedBeforeReady(LaunchFailed):
    """A program ended before it was ready. In this case `Died` is not called.

    Attributes:
        name, status: the program's name and exit status, as `Died` gets them.
        last_lines: the end of the program's log, for the message.
    """

    def __init__(self, name: str, status: int, last_lines: str) -> None:
        super().__init__(f"the {name} {ending(status)} before it was ready{last_lines}")
        self.name, self.status, self.last_lines = name, status, last_lines


def ending(status: int, cause: str = "") -> str:
    """How a program with this exit status ended, for a message.

    Args:
        cause: as `Backend.cause_of` returns it.
    """
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"ended unexpectedly {how}" + (f" ({cause})" if cause else "")


BackendName = Literal["processes", "docker", "compose", "ray"]
"""The names of the backends. `muster up` uses "compose", which no option names."""


class ProgramUse(NamedTuple):
    """What a program uses, as the kernel counts it.

    Attributes:
        cpu_s: seconds of a core since it was started.
        held_back: how often the kernel has held it back because of its share of cores; 0 for a
            process, which the watchdog holds back.
        memory_limit: bytes of memory that it may use.
    """

    cpu_s: float
    held_back: int
    memory_bytes: int
    memory_limit: int


class Program(Protocol):
    """A handle of a program that is alive."""

    def signal(self, number: int) -> None:
        """Send a signal to the program. Does nothing if it has just ended."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the pause watchdog needs to find the program: `pid` or `container`."""
        ...

    def is_paused(self) -> bool:
        """Whether the program is stopped and can go on."""
        ...

    def use(self) -> ProgramUse | None:
        """What the program uses; None if it has ended."""
        ...


class ProgramPauses(Protocol):
    """Pauses and limits programs. All of them go on if the supervisor dies."""

    async def pause(self, name: str, handle: Mapping[str, Any]) -> bool:
        """Pause the program with the identity `handle`; return whether it was there to be
        paused."""
        ...

    async def resume(self, name: str) -> None:
        """Let a program go on."""
        ...

    async def limit(self, name: str, what: Limited, value: float, handle: Mapping[str, Any]) -> str:
        """Limit a program; return why that was impossible, "" if it was done or if the program has
        ended."""
        ...

    async def free(self, name: str, what: Limited) -> None:
        """Take a limit away."""
        ...

    async def held_back(self, name: str) -> int:
        """How often a process was stopped by its share of a core while it was running."""
        ...

    async def close(self) -> None:
        """Let everything go on."""
        ...


class Backend(Protocol):
    """Starts programs, reports their deaths, and ends them all.

    Attributes:
        isolates: whether devices can reach the server only through a gateway.
        encrypts: whether programs always use TLS, because connections leave this machine or its
            loopback.
        folders: folders of the run, as the devices see them.
        pauses: pauses and limits the programs.
    """

    isolates: bool
    encrypts: bool
    folders: DeviceFolders
    pauses: ProgramPauses

    @property
    def here(self) -> str:
        """This machine's address, as gateways reach it."""
        ...

    @property
    def metrics_host(self) -> str:
        """The address at which a program of this machine reaches the server's metrics."""
        ...

    def reachable_ports(self, group: str, ports: Ports) -> Ports:
        """The ports of a group's gateway, with the addresses by which this machine reaches them."""
        ...

    @property
    def alive(self) -> Mapping[str, Program]:
        """The programs that are alive, by name."""
        ...

    @property
    def placeable(self) -> Mapping[str, int]:
        """Process ids of the processes that may be placed on cores of this machine, by name."""
        ...

    def with_addresses(self, server: ServerProcess) -> ServerProcess:
        """The server's settings, with the addresses of the server and of its evaluation."""
        ...

    async def load_server(self) -> None:
        """Load the server's program, so that `start_server` takes less time, if the backend can."""
        ...

    async def start_nursery(self, config: NurseryProcess) -> dict[str, Any]:
        """Start the nursery, which prepares the task. Return what it reports: `examples`, `schema`.

        Raises:
            EndedBeforeReady: the nursery died; it can be started again.
            LaunchFailed: the task cannot be prepared, or this takes too long.
        """
        ...

    async def start_gateway(self, config: GatewayProcess) -> Ports:
        """Start the gateway of a group, and return the ports where it listens. A restarted gateway,
        with `config.again`, listens on the same ports as before.

        Raises:
            EndedBeforeReady: the gateway died before its ports were open; it can be started again.
            LaunchFailed: its start takes too long.
        """
        ...

    async def start_server(self) -> str:
        """Start the server in the run folder. Return its address, host:port, for gateways and
        devices.

        Raises:
            EndedBeforeReady: the server died before its port answered; it can be started again.
            LaunchFailed: its start takes too long.
        """
        ...

    async def start_evaluation(self) -> None:
        """Start the evaluation, unless the server starts it itself or it is already alive."""
        ...

    async def start_packs(self, configs: Sequence[PackProcess]) -> None:
        """Start or restart packs of devices. Packs that share a container are always started
        together, even if `configs` has only some of them."""
        ...

    async def close(self) -> None:
        """End all programs that are still alive, and wait until they are gone."""
        ...

    def cause_of(self, name: str) -> str:
        """What the system knows of why a program died last, for example "out of memory"; "" if it
        knows nothing."""
        ...

    def last_lines(self, name: str) -> str:
        """The end of a program's log, for a message."""
        ...


MakeBackend = Callable[[Scenario, Path, Clock, Died], Backend]
