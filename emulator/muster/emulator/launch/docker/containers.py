"""The docker backend: runs the programs of a run in containers, through Docker's API.

Containers and networks have the run's label, so that `muster down` finds them whatever kills the
command. Those that an earlier command left for the same folder are removed at the start.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import docker
import docker.errors
import docker.types
import requests.exceptions

from muster.client.processes.config import NurseryProcess, PackProcess
from muster.common.clock import Clock
from muster.common.credentials import (
    SECRETS,
    SUPERVISOR,
    credentials_path,
    gateway_identity,
    read_credentials,
)
from muster.common.errors import LaunchFailed, Unauthenticated
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.gateway.words import no_words
from muster.emulator.launch.backend import Died, ProgramPauses
from muster.emulator.launch.docker.container import ContainerProgram, run_container
from muster.emulator.launch.docker.daemon import (
    connect,
    containers_of,
    free_port,
    hand_over,
    keep_log,
    remove_all,
    take_back,
)
from muster.emulator.launch.docker.services import (
    BACKBONE,
    CONTROL_PORT,
    FOLDER_LABEL,
    INSIDE,
    NAME_LABEL,
    SERVER_PORT,
    Service,
    Site,
    docker_name,
    group_network,
    project_of,
)
from muster.emulator.launch.pausing import Pauses
from muster.emulator.launch.processes import Processes
from muster.emulator.launch.starting import SEARCHED_LINES, StartingPrograms, quoted
from muster.emulator.run_folder.folder import ADDRESS
from muster.emulator.scenario.scenario import Scenario
from muster.server.settings.process import ServerProcess
from muster.wire.connections.streams import connect_blocking

T = TypeVar("T")

_POLL_S = 0.05
_SIGNALS = 128
_ANSWER_S = 1.0


class Containers:
    """The backend that runs a fleet's programs in containers.

    Args:
        died: called with every death.
    """

    isolates = True
    encrypts = True
    metrics_host = "127.0.0.1"
    folders = INSIDE

    def __init__(self, scenario: Scenario, folder: Path, clock: Clock, died: Died) -> None:
        self.pauses: ProgramPauses = Pauses(clock)
        self._folder = folder
        self._clock = clock
        self._died = died
        self._scenario = scenario
        self._site = Site(scenario, folder)
        self._client = connect()
        self._project = project_of(folder)
        self._alive: dict[str, ContainerProgram] = {}
        self._starved = set[str]()
        self._packs: dict[str, str] = {}
        self._services: dict[str, Service] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._starting = StartingPrograms(clock, died, self.last_lines, _POLL_S)
        self._loop = asyncio.get_running_loop()
        self._since = int(clock.now())
        self._closing = threading.Event()
        self._opened = self._handed_over = False
        self._calls = set[asyncio.Future[Any]]()
        self._outside = 0

    @property
    def here(self) -> str:
        """This machine's address in the backbone network."""
        network = self._client.networks.get(f"{self._project}_{BACKBONE}")
        return str(network.attrs["IPAM"]["Config"][0]["Gateway"])

    def reachable_ports(self, group: str, ports: Ports) -> Ports:
        """The ports with the gateway's address in its group's network, which Linux can reach from
        outside of containers."""
        found = self._container(gateway_name(group)).attrs["NetworkSettings"]["Networks"]
        address = found[f"{self._project}_{group_network(group)}"]["IPAddress"]
        return ports.model_copy(update={"host": address, "outside": f"{address}:{CONTROL_PORT}"})

    @property
    def alive(self) -> Mapping[str, ContainerProgram]:
        """The live containers, by name, and by the names of the packs that they contain."""
        inside = self._packs.items()
        packs = {pack: self._alive[name] for pack, name in inside if name in self._alive}
        return {**self._alive, **packs}

    @property
    def placeable(self) -> Mapping[str, int]:
        """Empty, because Docker decides on which cores a container runs."""
        return {}

    def with_addresses(self, server: ServerProcess) -> ServerProcess:
        """The server's settings for its container; the evaluation has a container of its own."""
        self._outside = self._port_of("server") or free_port()
        return self._site.with_addresses(server, self._outside)

    def _port_of(self, name: str) -> int:
        """The port of this machine at which a program is to be published; 0: any free one."""
        return self._scenario.server.port if name == "server" else 0

    async def start_nursery(self, config: NurseryProcess) -> dict[str, Any]:
        """Prepare the task on this machine, because containers of devices have nurseries of their
        own."""
        processes = Processes(self._folder, self._clock, lambda name, status: None)
        try:
            prepared = await processes.start_nursery(config)
        finally:
            await processes.close()
        return prepared

    def _open(self) -> None:
        """Make what containers need and watch them, at the first call only."""
        if self._opened:
            return
        self._opened = True
        remove_all(self._client, self._folder, self._clock)
        # Gateways read their credentials before the whole folder is handed over.
        hand_over(self._folder / SECRETS, self._site.user)
        threading.Thread(target=self._watch, daemon=True).start()
        self._make()

    def _make(self) -> None:
        """Make the networks."""
        for name, internal in self._site.networks().items():
            self._client.networks.create(
                f"{self._project}_{name}",
                driver="bridge",
                internal=internal,
                labels={FOLDER_LABEL: str(self._folder)},
            )

    async def start_gateway(self, config: GatewayProcess) -> Ports:
        await self._call(self._open)
        if config.again is None:
            await self._call(self._no_words, config)
        # A restarted gateway is published on the same port.
        given = self._port_of(gateway_name(config.group)) or free_port()
        outside = config.again.controllers[1] if config.again is not None else given
        service, ports = self._site.gateway(config, outside)
        await self._start_until(service, partial(self._answers, config.group, *ports.controllers))
        return ports

    def _no_words(self, config: GatewayProcess) -> None:
        no_words(config.words)
        if config.words is not None:
            os.chown(Path(config.words).parent, *self._site.user)

    def _answers(self, group: str, host: str, port: int) -> bool:
        """Whether a gateway answers a request. A connection alone is not enough, because Docker's
        proxy accepts connections before the gateway does."""
        path = credentials_path(self._folder / SECRETS, SUPERVISOR)
        try:
            credentials = read_credentials(path)
            with connect_blocking(
                host, port, credentials, gateway_identity(group), _ANSWER_S
            ) as connection:
                connection.sendall(b"{}\n")
                return bool(connection.recv(1))
        except (OSError, Unauthenticated):
            return False

    async def load_server(self) -> None:
        """Do nothing, because the container starts with the program."""

    async def start_server(self) -> str:
        """Start the server, and the evaluation if it does not run yet."""
        address = self._folder / ADDRESS
        await asyncio.to_thread(address.unlink, missing_ok=True)
        await self._call(self._open)
        await self._call(self._hand_over)
        await self.start_evaluation()
        service = self._site.server(self._outside)
        await self._start_until(service, address.exists)
        return f"{service.name}:{SERVER_PORT}"

    async def start_evaluation(self) -> None:
        if "evaluation" not in self._alive:
            await self._start(self._site.evaluation())

    def _hand_over(self) -> None:
        """Give the run folder to the user of the server's container, at the first call only, before
        there are devices."""
        if not self._handed_over:
            self._handed_over = True
            hand_over(self._folder, self._site.user)

    async def start_packs(self, configs: Sequence[PackProcess]) -> None:
        again = {self._packs[pack.name] for pack in configs if pack.name in self._packs}
        for name in again:
            await self._start(self._services[name])
        starting = []
        for service, packs in self._site.devices(
            [pack for pack in configs if pack.name not in self._packs]
        ):
            for pack in packs:
                self._packs[pack.name] = service.name
            self._services[service.name] = service
            await self._call(self._own_states, packs)
            starting.append(service)
        await self._start_all(starting)

    def _own_states(self, packs: Sequence[PackProcess]) -> None:
        for member in (member for pack in packs for member in pack.devices):
            folder = self._folder / "devices" / member.client
            folder.mkdir(exist_ok=True)
            os.chown(folder, *self._site.user)

    # --- one container ---------------------------------------------------------------------------

    async def _start_all(self, services: Sequence[Service]) -> None:
        for service in services:
            await self._start(service)

    async def _start(self, *services: Service) -> None:
        """Start the containers of services together."""
        names = [service.name for service in services]
        async with AsyncExitStack() as turns:
            # A container that ends at once may be restarted before its first start has returned.
            for name in names:
                turn = self._turns.setdefault(name, asyncio.Lock())
                await turns.enter_async_context(turn)
                self._starved.discard(name)
                # Set this first, because a death may be reported before the start returns.
                self._alive[name] = ContainerProgram(
                    partial(self._container, name), self._in_thread
                )
            try:
                await self._call(self._run, services)
            except LaunchFailed as error:
                for name in names:
                    self._alive.pop(name, None)
                what = f"the container {names[0]}" if len(names) == 1 else "the containers"
                raise LaunchFailed(f"{what} could not be started: {error}") from None

    async def _start_until(self, service: Service, ready: Callable[[], bool]) -> None:
        """Start a container, and wait until it is ready.

        Raises:
            EndedBeforeReady: the container ended before it was ready.
            LaunchFailed: its start takes too long.
        """
        self._starting.begin(service.name)
        await self._start(service)

        async def look() -> bool | None:
            return await asyncio.to_thread(ready) or None

        await self._starting.until_ready(service.name, look)

    def _run(self, services: Sequence[Service]) -> None:
        for service in services:
            with suppress(docker.errors.NotFound):  # if there is no predecessor that died
                old = self._container(service.name)
                keep_log(old, self._folder)
                old.remove(force=True)
            run_container(self._client, self._site, service)

    def _container(self, name: str) -> Any:
        return self._client.containers.get(f"{self._project}-{docker_name(name)}")

    # --- deaths ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Report every container that ends. Runs in a thread."""
        client = connect()
        try:
            label = f"{FOLDER_LABEL}={self._folder}"
            filters = {"label": label, "event": ["oom", "die"]}
            for event in client.events(decode=True, since=self._since, filters=filters):
                attributes = event["Actor"]["Attributes"]
                if event["Action"] == "oom":  # the kernel has killed a process of the container
                    self._starved.add(attributes[NAME_LABEL])
                    continue
                status = int(attributes["exitCode"])
                status = _SIGNALS - status if status > _SIGNALS else status
                if self._closing.is_set():
                    return
                self._loop.call_soon_threadsafe(self._ended, attributes[NAME_LABEL], status)
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError):
            if not self._closing.is_set():
                self._loop.call_soon_threadsafe(self._died, "the Docker daemon", 1)
        finally:
            client.close()

    def _ended(self, name: str, status: int) -> None:
        if self._alive.pop(name, None) is None:
            return
        # A container's packs die together. Reporting one of them restarts all of them.
        first = next((pack for pack, where in self._packs.items() if where == name), name)
        self._starting.ended(first, status)

    # --- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        self._closing.set()
        while self._calls:  # containers that are being made cannot be removed yet
            await asyncio.wait(set(self._calls))
        await self._call(self._remove_all)
        self._client.close()

    def _remove_all(self) -> None:
        for container in containers_of(self._client, self._folder):
            keep_log(container, self._folder)
        remove_all(self._client, self._folder, self._clock)
        take_back(self._folder)

    def cause_of(self, name: str) -> str:
        return "out of memory" if self._packs.get(name, name) in self._starved else ""

    def last_lines(self, name: str) -> str:
        """The end of a container's log, for a message."""
        try:
            found = self._container(self._packs.get(name, name)).logs(tail=SEARCHED_LINES)
        except (docker.errors.DockerException, requests.exceptions.RequestException):
            return ". Its log is gone"
        return quoted(found.decode(errors="replace"))

    def _in_thread(self, call: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        calling = asyncio.ensure_future(asyncio.to_thread(call, *args))
        self._calls.add(calling)
        calling.add_done_callback(self._calls.discard)
        return calling

    async def _call(self, call: Callable[..., T], *args: Any) -> T:
        """Run a call in a thread. It runs to its end even if the caller is cancelled.

        Raises:
            LaunchFailed: Docker refused a request or does not answer, or a file could not be
                written.
        """
        try:
            return await asyncio.shield(self._in_thread(call, *args))
        except docker.errors.APIError as error:
            raise LaunchFailed(str(error.explanation)) from None
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise LaunchFailed(f"Docker does not answer: {error}") from None
        except OSError as error:
            raise LaunchFailed(str(error)) from None
