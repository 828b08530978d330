"""The limits that faults put on programs, and what the kernel measures of their effect."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence

from muster.common.clock import Clock
from muster.emulator.faults.injection import MeasuredUse
from muster.emulator.launch.backend import Backend, ProgramPauses, ProgramUse
from muster.emulator.run_folder.limits import Limited


class ProgramLimits:
    """The limits of programs. If several faults limit the same, shares of a core multiply, and
    otherwise the smallest limit counts."""

    def __init__(self, backend: Backend, pauses: ProgramPauses, clock: Clock) -> None:
        self._backend = backend
        self._pauses = pauses
        self._clock = clock
        self._values: dict[tuple[str, Limited], list[float]] = defaultdict(list)
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._since: dict[str, tuple[float, float, int]] = {}

    def has(self, program: str, what: Limited) -> bool:
        return bool(self._values.get((program, what)))

    def any(self, program: str) -> bool:
        return any(self._values[key] for key in list(self._values) if key[0] == program)

    async def add(self, program: str, what: Limited, value: float) -> str:
        """Limit a program; return why the system refuses it, "" if it does not."""
        self._values[program, what].append(value)
        return await self._bring(program, what)

    async def remove(self, program: str, what: Limited, value: float) -> None:
        self._values[program, what].remove(value)
        await self._bring(program, what)

    async def renew(self, program: str) -> None:
        """Limit a program again that has been started again."""
        for limited, what in list(self._values):
            if limited == program and self._values[limited, what]:
                await self._bring(program, what)

    async def _bring(self, program: str, what: Limited) -> str:
        """Bring the limit that holds to a program, one after the other: a fault may be healed while
        its limit is on its way to a program that has been started again."""
        async with self._turns[program]:
            if self._values[program, what]:
                return await self._apply(program, what, self._values[program, what])
            await self._pauses.free(program, what)
            return ""

    async def _apply(self, program: str, what: Limited, values: Sequence[float]) -> str:
        handle = self._backend.alive.get(program)
        if handle is None:
            return ""
        value = math.prod(values) if what == "cpu" else min(values)
        identity = await asyncio.to_thread(lambda: dict(handle.identity))
        refused = await self._pauses.limit(program, what, value, identity)
        if what == "cpu" and (use := await asyncio.to_thread(handle.use)) is not None:
            self._since[program] = await self._now(program, use)
        return refused if program in self._backend.alive else ""

    async def use(self, program: str) -> MeasuredUse | None:
        """What a program has used since its share of a core was limited last, and the memory that
        it uses now; None if it is not alive."""
        handle = self._backend.alive.get(program)
        if handle is None or (use := await asyncio.to_thread(handle.use)) is None:
            return None
        seconds, share, held_back = 0.0, 0.0, 0
        now, since = await self._now(program, use), self._since.get(program)
        if since is not None and now[0] > since[0]:
            seconds, held_back = now[0] - since[0], now[2] - since[2]
            share = (now[1] - since[1]) / seconds
        return MeasuredUse(seconds, share, held_back, use.memory_bytes, use.memory_limit)

    async def _now(self, program: str, use: ProgramUse) -> tuple[float, float, int]:
        """Monotonic seconds, seconds of a core, and how often the program was held back."""
        held_back = use.held_back + await self._pauses.held_back(program)
        return self._clock.monotonic(), use.cpu_s, held_back
