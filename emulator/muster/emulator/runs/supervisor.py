"""The supervisor: starts the processes of a run, watches them, and ends them all.

It does not train or serve anything itself. If a process dies unexpectedly, the supervisor restarts
it while the scenario has `launch.restarts` left; otherwise the run fails.
"""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from muster.common.causes import outer_cause
from muster.common.clock import Clock
from muster.common.credentials import device_name
from muster.common.errors import LaunchFailed, RunFailed
from muster.common.events import BY_MUSTER, Died, Event, Restarted, Revoked, Started, Warned
from muster.common.files import write_atomic
from muster.common.journal import Journal
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.injection.fleet_site import FleetSite
from muster.emulator.injection.run_faults import RunFaults
from muster.emulator.launch.backend import EndedBeforeReady, MakeBackend, ending
from muster.emulator.launch.placement import Placement, usable_cores
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.link_control.network import GatewayFleet
from muster.emulator.run_folder.folder import JOURNAL, resume_advice
from muster.emulator.run_folder.journal_tail import Tail
from muster.emulator.run_folder.supervisor_socket import SupervisorSocket
from muster.emulator.runs.resumption import last_incarnation
from muster.emulator.scenario.scenario import Scenario
from muster.server.settings.process import ServerProcess
from muster.wire import INLINE_BYTES

if TYPE_CHECKING:
    from muster.client.processes.config import PackProcess

SHOW_EVERY_S = 0.1
"""By default, seconds between two reads of the journal, from which progress is shown."""

_SOON_S = 0.01
"""Seconds between two reads if the run injects faults."""

_LEAVE_S = 10.0
_LEAVE_AWAY_S = 1.0
"""Seconds to wait for devices to leave after the server has said that the run is over. With a clock
other than rounds, devices may be away and do not hear it, so the wait is shorter."""


class _RunIsOver(Exception):
    """The run ended before its plan was written."""


Show = Callable[[dict[str, Any]], None]
StartEvent = type[Started] | type[Restarted]
T = TypeVar("T")


class Supervisor:
    """Supervises one run in one folder, from the start of its first process to the end of its last.

    Args:
        show: called with every event of the journal, in order.
        make_backend: makes the backend that starts the programs.
        show_every_s: seconds between two reads of the journal for `show`.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        clock: Clock,
        show: Show,
        make_backend: MakeBackend,
        show_every_s: float = SHOW_EVERY_S,
    ) -> None:
        self.scenario = scenario
        self.folder = folder
        self.configs = ProcessConfigs(scenario, folder)
        self._clock = clock
        self._show = show
        self._show_every_s = show_every_s
        self._tail = Tail(folder / "journal.jsonl")
        self._incarnation = _next_incarnation(folder)
        self._journal = Journal(folder / "journal.jsonl", "supervisor", self._incarnation, clock)
        self.backend = make_backend(scenario, folder, clock, self._on_death)
        self._restarts_left = scenario.launch.restarts
        self._ended = asyncio.Event()
        self._failure: RunFailed | None = None
        self._stopping = False
        self._serving = False
        self._served = False
        self._server: ServerProcess
        self._packs: dict[str, PackProcess] = {}
        self._revoked = set[str]()
        self._deaths: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self._network = GatewayFleet(self.backend, clock, self._record, self.configs.supervisor)
        self._placing: asyncio.Task[None] | None = None
        site = FleetSite(
            self.backend, self._network, clock, self._start_again, lambda: self._serving,
            self.configs,
        )  # fmt: skip
        self._faults = RunFaults(folder, self.configs, site, clock, self._record, self._fail)
        self._socket = SupervisorSocket(folder, self._handle, clock)
        if self._faults.injects:  # a fault begins when the journal is read
            self._show_every_s = min(show_every_s, _SOON_S)

    async def run(self) -> None:
        """Start the fleet, and wait until the server has ended the run.

        Raises:
            RunFailed: the run failed; no process is left running.
        """
        await self._socket.open()
        watching = asyncio.create_task(self._watch())
        handling = asyncio.create_task(self._handle_deaths())
        starting = asyncio.create_task(self._start())
        ended = asyncio.create_task(self._ended.wait())
        try:
            # The first task that fails ends the run; a display that raises also does.
            needed = {watching, handling, starting, ended}
            while not ended.done():
                done, needed = await asyncio.wait(needed, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await task
            if self._failure is None and not self._stopping:
                await self._devices_left()
        finally:
            self._stopping = True
            await self._socket.close()
            await self._faults.close()
            for task in (handling, starting, ended):
                task.cancel()
            # Wait until starts that were under way are over, so that the backend can end them too.
            await asyncio.gather(handling, starting, ended, return_exceptions=True)
            if self._placing is not None:
                self._placing.cancel()
                await asyncio.gather(self._placing, return_exceptions=True)
            await self._network.close()
            await self.backend.close()
            watching.cancel()
            self._look()
            self._journal.close()
        self._look()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End all faults, so that nothing holds the server, and ask it for an orderly end. The
        run's status is then `stopped`. A second call ends the run at once."""
        server = self.backend.alive.get("server")
        if self._stopping or not self._serving or server is None:
            when = "while the server started again" if self._served else "before the run began"
            when = "at once" if self._serving else when
            self._failure = self._failure or RunFailed(f"stopped {when}")
            self._ended.set()
        self._stopping = True
        if self._serving and server is not None:  # else it has no handler for the signal yet
            self._faults.end()
            server.signal(signal.SIGTERM)

    async def _handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Meet a request of the run's user."""
        if "stop" in request:
            self.stop()
            return {}
        return await self._faults.handle(request)

    # --- starting --------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._faults.begin()
        nursery = self.configs.nursery()
        await self.backend.load_server()
        prepared = await self._until_ready(
            "nursery", lambda: self.backend.start_nursery(nursery), Started
        )
        self._server = server = self.backend.with_addresses(self.configs.server(prepared))
        for warning in self.configs.warnings(prepared):
            self._record(Warned(0, BY_MUSTER, warning))
        self._write_server()
        await self._start_network(server)
        address = await self._start_server(Started)
        await self._network.set_upstream(address)
        packs = self.configs.packs(server, address, self._network.ports, self.backend.folders)
        self._packs = {config.name: config for config in packs}
        self._faults.add_packs(self._packs.values())
        await self.backend.start_packs(list(self._packs.values()))
        self._start_placing(server)
        await self._write_plan(prepared)

    async def _until_ready(
        self, name: str, start: Callable[[], Awaitable[T]], event: StartEvent
    ) -> T:
        """Start a program, and restart it if it ends before it is ready.

        Args:
            event: the kind of event to record in the journal when the program is ready.

        Raises:
            LaunchFailed: the program ended and no restart is left, or it takes too long.
        """
        while True:
            try:
                started = await start()
            except EndedBeforeReady as ended:
                self._use_up_a_restart(name, ended.status)
                event = Restarted
            else:
                self._record(event(name))
                return started

    async def _start_server(self, event: StartEvent) -> str:
        """Start the server and return its address. A restarted server keeps its address."""
        self._serving = False
        address = await self._until_ready("server", self.backend.start_server, event)
        self._serving = self._served = True
        self._server = self._server.model_copy(update={"port": int(address.rpartition(":")[2])})
        self._write_server()
        return address

    def _start_placing(self, server: ServerProcess) -> None:
        """Reserve a core for the server while it is the bottleneck. With large models the server
        uses several cores, so none is reserved."""
        small, cores = server.tensors.body_bytes <= INLINE_BYTES, usable_cores()
        if self.scenario.launch.own_core and small and len(cores) > 1:
            placement = Placement(lambda: self.backend.placeable, cores, self._clock, self._record)
            self._placing = asyncio.create_task(placement.watch())

    async def _start_network(self, server: ServerProcess) -> None:
        """Start the gateways, and measure their links if the scenario says so.

        This is done before the server starts, because the server waits for devices, and before the
        first device starts.
        """
        for config in self.configs.gateways(self.backend.isolates):
            await self._network.add(config, await self._start_gateway(config, Started))
        if self.scenario.verify:
            # Imported only here, because it takes a tenth of a second.
            from muster.emulator.verification.verifying import verify_before_run

            await verify_before_run(
                self._network.reached(), self._clock, self.backend.here, self.scenario.name,
                self._record,
            )  # fmt: skip
        self._network.watch()

    async def _start_gateway(self, config: GatewayProcess, event: StartEvent) -> Ports:
        name = gateway_name(config.group)
        return await self._until_ready(name, lambda: self.backend.start_gateway(config), event)

    async def _write_plan(self, prepared: dict[str, Any]) -> None:
        def write() -> None:
            with suppress(_RunIsOver):
                self.configs.write_plan(prepared, self._require_running)

        await asyncio.to_thread(write)

    def _require_running(self, done: int, of: int) -> None:
        if self._stopping:
            raise _RunIsOver

    def _write_server(self) -> None:
        write_atomic(self.folder / "setup/server.json", self._server.to_json().encode())

    # --- deaths ----------------------------------------------------------------------------------

    def _on_death(self, name: str, status: int) -> None:
        if not self._faults.died(name, status):
            self._deaths.put_nowait((name, status))

    def _fail(self, error: Exception) -> None:
        """End the run as failed because a fault could not be injected or healed."""
        failure = (
            error
            if isinstance(error, RunFailed)
            else RunFailed(f"a fault failed: {outer_cause(error) or error}")
        )
        self._failure = self._failure or failure
        self._ended.set()

    async def _handle_deaths(self) -> None:
        while True:
            name, status = await self._deaths.get()
            try:
                await self._handle_death(name, status)
            except RunFailed as failure:
                self._failure = failure
                self._ended.set()

    async def _handle_death(self, name: str, status: int) -> None:
        self._look()
        if self._saw_end:
            if name == "server":
                self._ended.set()
            return
        if self._ended.is_set():
            return
        self._require_folder()
        if device_name(name) in self._revoked:  # it ends because the server refuses it
            self._record_death(name, status)
            return
        # The nursery cannot be restarted, because its devices die with it.
        replaceable = name in {"server", "evaluation", *self._packs, *self._network.names}
        self._use_up_a_restart(name, status, replaceable)
        await self._start_again(name)

    def _require_folder(self) -> None:
        """Check that the files are there without which programs end.

        Raises:
            RunFailed: they were removed during the run.
        """
        for path in (self.folder, self.folder / JOURNAL):
            if not path.exists():
                raise RunFailed(
                    f"{path} was removed while the run was going on, so its programs ended; begin "
                    f"another run, and leave its folder as it is until it has ended"
                )

    async def _start_again(self, name: str) -> None:
        """Start a program that has died."""
        if name == "server":
            await self._start_server(Restarted)
        elif name in self._network.names:
            config = self._network.restart_config(name)
            await self._network.add(config, await self._start_gateway(config, Restarted))
        else:
            if name == "evaluation":
                await self.backend.start_evaluation()
            else:
                await self.backend.start_packs([self._packs[name]])
            self._record(Restarted(name))
        await self._faults.started(name)

    def _use_up_a_restart(self, name: str, status: int, replaceable: bool = True) -> None:
        """Record the death of a program, and use up one restart for it.

        Raises:
            LaunchFailed: no restart is left, or the program cannot be restarted.
        """
        devices, cause = self._record_death(name, status)
        if replaceable and self._restarts_left and not self._stopping:
            self._restarts_left -= 1
            return
        who = f"{name} ({devices} devices)" if devices > 1 else name
        lines = self.backend.last_lines(name)
        raise LaunchFailed(
            f"{who} {ending(status, cause)}{lines}{resume_advice(self.folder, lines)}"
        )

    def _record_death(self, name: str, status: int) -> tuple[int, str]:
        """Record the death of a program; return the number of its devices, and the cause."""
        devices = len(self._packs[name].devices) if name in self._packs else 0
        cause = self.backend.cause_of(name)
        self._record(Died(name, status, devices, cause))
        return devices, cause

    async def _devices_left(self) -> None:
        everybody_hears = self.scenario.clock.lockstep
        patience_s = _LEAVE_S if everybody_hears else _LEAVE_AWAY_S
        limit = self._clock.monotonic() + patience_s
        leaving = {"server", *self._packs}
        while leaving & self.backend.alive.keys() and self._clock.monotonic() < limit:
            await self._clock.sleep_until(self._clock.monotonic() + 0.01)

    # --- watching --------------------------------------------------------------------------------

    _saw_end = False

    async def _watch(self) -> None:
        while True:
            self._look()
            await self._clock.sleep_until(self._clock.monotonic() + self._show_every_s)

    def _look(self) -> None:
        for event in self._tail.new():
            self._saw_end = self._saw_end or event["event"] == "ended"
            if event["event"] == Revoked.name:
                self._revoked.add(event["process"])
            self._faults.happen(event)
            self._show(event)

    def _record(self, event: Event) -> None:
        self._journal.add(event)
        self._journal.flush_if_room()


def _next_incarnation(folder: Path) -> int:
    number = 1 + last_incarnation(folder)
    write_atomic(folder / "setup/supervisor.json", json.dumps({"incarnation": number}).encode())
    return number
