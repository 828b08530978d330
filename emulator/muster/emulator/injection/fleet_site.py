"""The running fleet of a supervisor, as injected faults see it."""

import asyncio
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from muster.client.processes.config import PackProcess
from muster.common.clock import Clock
from muster.common.errors import LaunchFailed
from muster.emulator.faults.injection import MeasuredUse
from muster.emulator.gateway.config import gateway_name
from muster.emulator.injection.program_limits import ProgramLimits
from muster.emulator.launch.backend import Backend
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.link_control.link_site import EmulatedLinks
from muster.emulator.link_control.network import GatewayFleet
from muster.emulator.run_folder.limits import Limited
from muster.server.runtime.room_on_disk import NO_ROOM

_POLL_S = 0.01

_START_S = 10.0
"""Most seconds for which a process that was started is awaited to pause it."""


class FleetSite:
    """The programs of a running fleet, and its links.

    Args:
        network: the gateways.
        start: starts a program again, by the name of its pack, gateway, or "server".
        serving: says whether the server is ready.
    """

    def __init__(
        self,
        backend: Backend,
        network: GatewayFleet,
        clock: Clock,
        start: Callable[[str], Awaitable[None]],
        serving: Callable[[], bool],
        configs: ProcessConfigs,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._start = start
        self._serving = serving
        self._over = False
        # A container ends with all its packs, and its death is reported under one of their names.
        self._shared: dict[str, str] = {}
        gateway_of = {group.name: group.gateway_group for group in configs.scenario.groups}
        self._groups = {each.client: gateway_of[each.group] for each in configs.residents}
        nominal = {resident.client: resident.shape for resident in configs.residents}
        self.links = EmulatedLinks(network, self._groups, nominal)
        self._pauses = backend.pauses
        self._limits = ProgramLimits(backend, self._pauses, clock)
        self._starved = set[str]()
        self._no_room = configs.folder / NO_ROOM
        self._programs: dict[str, str] = {}
        self._packs = set[str]()
        self._starting = set[str]()
        self._down: dict[str, int] = defaultdict(int)
        self._deaths: dict[str, int | None] = {}
        self._paused: dict[str, int] = defaultdict(int)
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._back: dict[str, int] = {}
        self.moment = 0

    def add_packs(self, packs: Iterable[PackProcess]) -> None:
        """Enter the packs whose processes will run."""
        self._programs = {device.client: pack.name for pack in packs for device in pack.devices}
        self._packs = set(self._programs.values())

    def happen(self, line: Mapping[str, Any]) -> None:
        """Take notice of a line of the journal."""
        self.moment += 1
        match line["event"]:
            case "attended":
                client = line["client"]
                self._back[client] = self.moment
                if client in self._groups:
                    self._back[gateway_name(self._groups[client])] = self.moment
            case "server_started":
                self._back["server"] = self.moment
            case "ended":
                self._over = True
            case _:
                pass

    def died(self, program: str, status: int) -> bool:
        """Take notice of a death; return whether a fault has ordered it."""
        program = self._shared.get(program, program)
        if self._is_starved(program, status):
            self._starved.add(program)
            self._down[program] += 1
        if not self._down.get(program):
            return False
        self._deaths[program] = status
        return True

    def _is_starved(self, program: str, status: int) -> bool:
        """Whether a program has ended because of its limit of memory. The kernel says so of a
        container. A process fails by itself when it gets no memory, and not by a signal from
        outside."""
        limited = self._limits.has(program, "memory") and not self._down.get(program)
        from_outside = status in (0, -signal.SIGKILL, -signal.SIGTERM)
        return limited and bool(self._backend.cause_of(program) or not from_outside)

    # --- what faults do --------------------------------------------------------------------------

    def _program(self, target: str) -> str:
        program = self._programs.get(target, target)
        return self._shared.get(program, program)

    def ready(self, targets: Iterable[str]) -> list[str]:
        self._find_shared()
        return [target for target in targets if self._is_ready(self._program(target))]

    def _is_ready(self, program: str) -> bool:
        if program == "server" and not self._serving():
            return False
        return program in self._backend.alive and program not in self._starting

    def _find_shared(self) -> None:
        """Find the packs that share a container, so that faults of two of them overlap in it."""
        alive, together = self._backend.alive, defaultdict[int, list[str]](list)
        for name, handle in alive.items():
            together[id(handle)].append(name)
        for names in together.values():
            if len(names) > 1:
                packs = [name for name in names if name in self._packs] or names
                self._shared |= dict.fromkeys(names, min(packs))

    def kill(self, target: str, number: int) -> None:
        program = self._program(target)
        handle = self._backend.alive.get(program)
        self._down[program] += 1
        if handle is None:
            return
        self._deaths[program] = None
        handle.signal(number)
        if self._paused.get(program) and number != signal.SIGKILL:
            handle.signal(signal.SIGCONT)

    async def start(self, target: str) -> None:
        program = self._program(target)
        while not self._over and self._deaths.get(program, 0) is None:  # it is still ending
            await self._clock.sleep_until(self._clock.monotonic() + _POLL_S)
        self._down[program] -= 1
        if self._over or self._down[program] or program in self._backend.alive:
            return
        self._starting.add(program)
        try:
            await self._start(program)
        finally:
            self._starting.discard(program)

    def death_of(self, target: str) -> int | None:
        return self._deaths.get(self._program(target))

    async def pause(self, target: str) -> None:
        program = self._program(target)
        self._paused[program] += 1
        await self._bring_pause(program)

    async def _bring_pause(self, program: str) -> None:
        """Let a program pause or go on, whichever holds, one after the other: a pause may be healed
        while it is on its way to a program that has been started again."""
        async with self._turns[program]:
            if not self._paused[program]:
                await self._pauses.resume(program)
            elif (handle := self._backend.alive.get(program)) is not None:
                identity = await asyncio.to_thread(lambda: dict(handle.identity))
                await self._pauses.pause(program, identity)

    async def resume(self, target: str) -> None:
        program = self._program(target)
        self._paused[program] -= 1
        await self._bring_pause(program)

    async def paused(self, targets: Iterable[str]) -> list[str]:
        handles = [(each, self._backend.alive.get(self._program(each))) for each in targets]
        return await asyncio.to_thread(
            lambda: [each for each, handle in handles if handle is not None and handle.is_paused()]
        )

    async def started(self, program: str) -> None:
        """Pause or limit a program that has just been started, if faults still do so."""
        program = self._shared.get(program, program)
        if not (self._paused.get(program) or self._limits.any(program)):
            return
        limit = self._clock.monotonic() + _START_S
        while program not in self._backend.alive and self._clock.monotonic() < limit:
            if self._over:
                return
            await self._clock.sleep_until(self._clock.monotonic() + _POLL_S)
        await self._limits.renew(program)
        if self._paused.get(program):
            await self._bring_pause(program)

    async def limit(self, targets: Iterable[str], what: Limited, value: float) -> None:
        for program in dict.fromkeys(map(self._program, targets)):
            if what == "memory" and not self._down.get(program):
                self._deaths.pop(program, None)  # of an earlier fault
            refused = await self._limits.add(program, what, value)
            if refused and what == "memory":  # it uses more already
                self._starved.add(program)
                self.kill(program, signal.SIGKILL)
            elif refused:
                raise LaunchFailed(f"{program} cannot be limited: {refused}")

    async def free(self, targets: Iterable[str], what: Limited, value: float) -> None:
        for program in dict.fromkeys(map(self._program, targets)):
            await self._limits.remove(program, what, value)
            if program in self._starved and not self._limits.has(program, "memory"):
                self._starved.discard(program)
                await self.start(program)

    async def use(self, targets: Iterable[str]) -> Mapping[str, MeasuredUse]:
        found = {target: await self._limits.use(self._program(target)) for target in targets}
        return {target: use for target, use in found.items() if use is not None}

    @property
    def lacks_room(self) -> bool:
        return self._no_room.exists()

    def back_since(self, target: str, moment: int) -> bool:
        return self._back.get(target, -1) > moment

    def end(self) -> None:
        """Start nothing any more."""
        self._over = True

    async def close(self) -> None:
        """Let everything go on."""
        await self._pauses.close()
