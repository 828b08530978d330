"""The processes backend: a server process, a gateway for each group that has links, a nursery, and
a process for each pack of devices.

Every process started here dies with this process, whatever kills it: child processes ask the kernel
for this (`die_with_parent`), and the nursery also ends when its socket closes.
"""

import asyncio
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from muster.client.processes.config import NurseryProcess, PackProcess, Surroundings
from muster.common import early_start
from muster.common.clock import Clock
from muster.common.credentials import EVALUATION, SECRETS
from muster.common.errors import ConfigError, LaunchFailed
from muster.common.processes import LOADED, OWN_CODE, child_command, child_environment
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.gateway.words import no_words
from muster.emulator.launch.backend import Died, EndedBeforeReady, ProgramPauses
from muster.emulator.launch.local_program import LocalProgram
from muster.emulator.launch.pausing import Pauses
from muster.emulator.launch.starting import READY_S, StartingPrograms, quoted
from muster.emulator.run_folder.folder import ADDRESS
from muster.server.settings.process import ServerProcess

NURSERY = "nursery"

FILES = "files"
"""The folder in the run folder with what the code of an app writes."""

_POLL_S = 0.01
_LINE_BYTES = 1 << 30
"""Most bytes of a message of the nursery, which may state the examples of 100,000 devices."""


_AnyProcess = asyncio.subprocess.Process | early_start.EarlyProgram
_SomeProcess = TypeVar("_SomeProcess", asyncio.subprocess.Process, early_start.EarlyProgram)


class Processes:
    """The backend that runs a fleet's programs as processes of this machine.

    Args:
        spawn: whether to start every pack in a process that shares nothing with the nursery.
        nursery: the name of the nursery, and of its log.
        writes_files: whether code of the user may write files, which then land in `files` of the
            run folder, the current directory of all programs.
    """

    isolates = False
    encrypts = False
    metrics_host = "127.0.0.1"

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        died: Died,
        spawn: bool = False,
        nursery: str = NURSERY,
        writes_files: bool = False,
    ) -> None:
        self.folders = DeviceFolders(str(folder / "devices"), str(folder / SECRETS))
        self.pauses: ProgramPauses = Pauses(clock)
        self._spawn = spawn
        self._folder = folder
        self._directory = folder / FILES if writes_files else None
        self._clock = clock
        self._died = died
        self._server: asyncio.subprocess.Process | None = None
        self._loaded: asyncio.subprocess.Process | None = None
        """A server whose imports are done, or under way, and which has not begun."""
        self._nursery: _AnyProcess | None = None
        self._nursery_name = nursery
        self._spawned: list[asyncio.subprocess.Process] = []
        self._gateways: list[asyncio.subprocess.Process] = []
        self._control: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self._prepared: asyncio.Future[dict[str, Any]]
        self._starting = StartingPrograms(clock, died, self.last_lines, _POLL_S)
        self._alive: dict[str, LocalProgram] = {}

    @cached_property
    def _orders(self) -> tuple[socket.socket, socket.socket]:
        """The two ends over which the server orders processes of the nursery."""
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @property
    def here(self) -> str:
        """The loopback address, because all programs are on one machine."""
        return "127.0.0.1"

    def reachable_ports(self, group: str, ports: Ports) -> Ports:
        """The same ports by which the group's devices reach the gateway."""
        return ports

    @property
    def alive(self) -> Mapping[str, LocalProgram]:
        """The live processes, by "server", "nursery", "evaluation", or name of a gateway or
        pack."""
        return self._alive

    @property
    def placeable(self) -> Mapping[str, int]:
        """All processes that are alive, also those that the server starts."""
        pids = {name: program.pid for name, program in self._alive.items()}
        return {**pids, **{f"beside the server {pid}": pid for pid in self._below_server()}}

    def _below_server(self) -> list[int]:
        """The processes that the server has started."""
        return _children(self._alive["server"].pid) if "server" in self._alive else []

    def with_addresses(self, server: ServerProcess) -> ServerProcess:
        """The settings of a server that listens only on this machine, and whose evaluation the
        nursery forks."""
        return server.model_copy(update={"nursery": self._orders[0].fileno()})

    # --- the nursery and its devices -------------------------------------------------------------

    async def start_nursery(self, config: NurseryProcess) -> dict[str, Any]:
        """Start the nursery, and return what it reports about the task: `examples`, `schema`.

        Raises:
            ConfigError: the task cannot be opened for this population.
            EndedBeforeReady: the nursery died; it can be started again.
            LaunchFailed: its start takes too long.
        """
        self._hang_up()
        self._starting.begin(self._nursery_name)
        self._nursery, ours = await self._started_nursery()
        directory = self._made_directory()
        surroundings = Surroundings(
            directory=None if directory is None else str(directory.absolute()),
            own_code=os.environ.get(OWN_CODE),
        )
        with self._log_of(self._nursery_name) as log:
            files = [self._orders[1].fileno(), log]
            socket.send_fds(ours, [surroundings.to_json().encode() + b"\n"], files)
        self._prepared = asyncio.get_running_loop().create_future()
        reader, self._control = await asyncio.open_connection(sock=ours, limit=_LINE_BYTES)
        self._control.write(config.to_json().encode() + b"\n")
        self._reading = asyncio.create_task(self._read(reader))
        try:
            prepared = await asyncio.wait_for(self._prepared, READY_S)
        except TimeoutError:
            raise self._starting.too_slow(self._nursery_name) from None
        self._starting.ready(self._nursery_name)
        return prepared

    async def _started_nursery(self) -> tuple[_AnyProcess, socket.socket]:
        """A nursery that waits for its configuration, and the socket over which it gets it."""
        if (early := early_start.take_early(early_start.NURSERY)) is not None:
            return self._watched(self._nursery_name, early), early.control
        ours, theirs = socket.socketpair()
        with theirs:
            return await self._start(self._nursery_name, [early_start.NURSERY], stdin=theirs), ours

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            event = json.loads(line)
            match event["event"]:
                case "ready" | "refused" | "failed" if self._prepared.done():
                    pass
                case "ready":
                    self._prepared.set_result(event)
                case "refused":
                    self._prepared.set_exception(ConfigError(event["why"]))
                case "failed":
                    self._prepared.set_exception(LaunchFailed(event["why"]))
                case "started":
                    self._alive[event["name"]] = LocalProgram(event["pid"])
                case "exited":
                    name, program = event["name"], LocalProgram(event["pid"])
                    if self._alive.get(name) == program:  # else there is another by now
                        del self._alive[name]
                    if name != EVALUATION:  # the server says how its own ended
                        self._died(name, event["status"])

    async def start_packs(self, configs: Sequence[PackProcess]) -> None:
        """Fork packs of devices from the nursery; spawn packs that train on a GPU."""
        for config in configs:
            if self._spawn or config.torch_device != "cpu":
                await self._spawn_pack(config)
            else:
                self._order({"start": config.model_dump()})

    async def _spawn_pack(self, config: PackProcess) -> None:
        """Start a pack of devices in a process that shares nothing with the nursery."""
        process = await self._start(
            config.name, ["muster.client.processes.spawned"], stdin=asyncio.subprocess.PIPE
        )
        self._spawned.append(process)
        assert process.stdin is not None
        process.stdin.write(config.to_json().encode() + b"\n")
        process.stdin.close()

    def _order(self, order: dict[str, Any]) -> None:
        if self._control is None:
            raise LaunchFailed("the nursery is gone")
        self._control.write(json.dumps(order).encode() + b"\n")

    # --- the server ------------------------------------------------------------------------------

    async def load_server(self) -> None:
        """Let a server import what it needs, until `start_server` lets it begin."""
        if self._loaded is None:
            command = [LOADED, *self._server_command()]
            self._loaded = await self._launched(
                "server", command, stdin=asyncio.subprocess.PIPE, pass_fds=self._server_files()
            )

    def _server_command(self) -> list[str]:
        return ["muster.server", str(self._folder)]

    def _server_files(self) -> tuple[int, ...]:
        """The descriptors that the server gets: its end of the orders for the nursery."""
        return (self._orders[0].fileno(),)

    async def start_server(self) -> str:
        """Start the server in the run folder; return its address, host:port.

        Raises:
            EndedBeforeReady: the server died before its port answered.
            LaunchFailed: its start takes too long.
        """
        address = self._folder / ADDRESS
        _remove(address)
        self._starting.begin("server")
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            command, files = self._server_command(), self._server_files()
            self._server = await self._start("server", command, pass_fds=files)
        elif loaded.returncode is not None:
            raise EndedBeforeReady("server", loaded.returncode, self.last_lines("server"))
        else:
            assert loaded.stdin is not None
            loaded.stdin.write(b"\n")
            loaded.stdin.close()
            self._server = self._watched("server", loaded)
        found = json.loads(await self._content("server", address))
        return f"{found['host']}:{found['port']}"

    async def start_evaluation(self) -> None:
        """Do nothing, because the server orders the evaluation."""

    # --- gateways --------------------------------------------------------------------------------

    async def start_gateway(self, config: GatewayProcess) -> Ports:
        """Start the gateway of a group; return the ports where it listens.

        Raises:
            EndedBeforeReady: the gateway died before its ports were open.
            LaunchFailed: its start takes too long.
        """
        assert config.ready is not None
        name, ready = gateway_name(config.group), Path(config.ready)
        _remove(ready)
        if config.again is None:
            no_words(config.words)
        self._starting.begin(name)
        gateway = await self._start(
            name, ["muster.emulator.gateway"], stdin=asyncio.subprocess.PIPE
        )
        self._gateways.append(gateway)
        assert gateway.stdin is not None
        gateway.stdin.write(config.to_json().encode() + b"\n")
        gateway.stdin.close()
        return Ports.from_json(await self._content(name, ready))

    async def _content(self, name: str, path: Path) -> bytes:
        """Wait for the file that a process writes when it is ready, and return its content."""

        async def look() -> bytes | None:
            return _read(path)

        return await self._starting.until_ready(name, look)

    # --- all of them -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Kill all processes that are still alive, and wait until they are gone."""
        # The kernel kills the devices and the evaluation when the nursery dies, and what the server
        # has started when the server dies.
        below = self._below_server()
        for process in (self._loaded, self._server, self._nursery, *self._spawned, *self._gateways):
            if process is not None and process.returncode is None:
                process.kill()
        if self._waiting:
            await asyncio.wait(self._waiting)
        if self._loaded is not None:
            await self._loaded.wait()
        self._hang_up()
        for end in vars(self).get("_orders", ()):
            end.close()
        for pid in [*(program.pid for program in self._alive.values()), *below]:
            await self._gone(pid)

    def _hang_up(self) -> None:
        """Close the connection to the nursery, if there is one."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _gone(self, pid: int) -> None:
        """Wait until a process has ended. Polls, because a device whose nursery was killed is not a
        child of this process."""
        while _state(pid) != "Z":
            await self._clock.sleep_until(self._clock.monotonic() + _POLL_S)

    def cause_of(self, name: str) -> str:
        """Nothing, because the kernel does not say why it killed a process."""
        return ""

    def last_lines(self, name: str) -> str:
        """The end of a process's log, for a message."""
        path = self._folder / "logs" / f"{name}.log"
        try:
            log = path.read_text(errors="replace")
        except FileNotFoundError:
            log = ""
        return quoted(log, path)

    async def _start(
        self, name: str, module: Sequence[str], **options: Any
    ) -> asyncio.subprocess.Process:
        return self._watched(name, await self._launched(name, module, **options))

    async def _launched(
        self, name: str, module: Sequence[str], **options: Any
    ) -> asyncio.subprocess.Process:
        with self._log_of(name) as log:
            return await asyncio.create_subprocess_exec(
                *child_command(*module),
                stdout=log,
                stderr=log,
                # This process handles Ctrl-C at the terminal. A session of its own keeps the
                # signal away from the new process.
                start_new_session=True,
                env=child_environment(),
                cwd=self._made_directory(),
                **{"stdin": asyncio.subprocess.DEVNULL, **options},
            )

    def _made_directory(self) -> Path | None:
        """The current directory of all programs; None: that of this process."""
        if self._directory is not None:
            self._directory.mkdir(exist_ok=True)
        return self._directory

    @contextmanager
    def _log_of(self, name: str) -> Iterator[int]:
        """The open log of a process."""
        log = os.open(
            self._folder / "logs" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )
        try:
            yield log
        finally:
            os.close(log)

    def _watched(self, name: str, process: _SomeProcess) -> _SomeProcess:
        self._alive[name] = program = LocalProgram(process.pid)
        waiting = asyncio.create_task(self._wait(name, program, process))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return process

    async def _wait(self, name: str, program: LocalProgram, process: _AnyProcess) -> None:
        status = await process.wait()
        if self._alive.get(name) is program:
            del self._alive[name]
        if name == self._nursery_name and self._reading is not None:
            await asyncio.wait({self._reading})  # its last message may give the reason
        if name == self._nursery_name and not self._prepared.done():
            ended = EndedBeforeReady(name, status, self.last_lines(name))
            self._prepared.set_exception(ended)
        else:
            self._starting.ended(name, status)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _children(pid: int) -> list[int]:
    try:
        found = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for line in found for child in line.split()]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
