"""On which cores a run's processes run (Linux): while rounds wait for the server, it has one alone.

Where a server and devices take turns on a core, each finds its caches full of the other. A round of
10 device processes with nothing to train took 0.88 of its time when the server had one of two cores
for itself; a round of 100, whose devices need both cores, 1.2 of it. So who is busy decides. The
evaluation is one of the others.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from muster.common.clock import Clock

_LOOK_S = 0.5

_BUSY = 0.6
"""Of a core, from which on rounds wait for the server."""

_ENTER, _STAY = 1.35, 1.5
"""How much more busy than the server each of the other cores may become, and may have become."""

_TICKS = os.sysconf("SC_CLK_TCK")


class Load(NamedTuple):
    """CPU seconds used so far: by the server, and by everything on the cores."""

    server_s: float
    all_s: float


def apart(server: float, others: float, cores: int, already: bool) -> bool:
    """Whether the server gets a core of its own.

    Args:
        server, others: CPU seconds a second, of the server and of everything else.
        already: whether it has one.
    """
    most = (_STAY if already else _ENTER) * server
    return cores > 1 and server >= _BUSY and others <= most * (cores - 1)


def load(server: int, cores: Sequence[int]) -> Load:
    """What a process and some cores have used so far.

    Raises:
        OSError: there is no such process.
    """
    used = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[11:13]
    names = {f"cpu{core}" for core in cores}
    busy = 0
    for name, *ticks in map(str.split, Path("/proc/stat").read_text().splitlines()):
        if name in names:
            user, nice, system, _, _, irq, softirq, *_ = map(int, ticks)
            busy += user + nice + system + irq + softirq
    return Load(sum(map(int, used)) / _TICKS, busy / _TICKS)


def place(pid: int, cores: Sequence[int]) -> None:
    """Have the threads of a process run on some cores; one that has ended is none."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                os.sched_setaffinity(int(thread), cores)


class Placement:
    """Keeps a run's processes on the cores where they should be.

    Args:
        pids: of the run's processes, by name; the server's is "server".
        cores: that the run may use.
        tell: records an event in the journal.
    """

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int]],
        cores: Sequence[int],
        clock: Clock,
        tell: Callable[..., None],
        load: Callable[[int, Sequence[int]], Load] = load,
        place: Callable[[int, Sequence[int]], None] = place,
    ) -> None:
        self._pids = pids
        self._cores = sorted(cores)
        self._clock = clock
        self._tell = tell
        self._load = load
        self._place = place
        self._apart = False
        self._before: tuple[int, float, Load] | None = None
        self._placed: dict[int, bool] = {}

    async def watch(self) -> None:
        """Look twice a second."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + _LOOK_S)
            self.look()

    def look(self) -> None:
        """Decide by what was used since the last look, and place whoever is not where it should
        be."""
        pids = self._pids()
        server, now = pids.get("server"), self._clock.monotonic()
        if server is None:
            return
        try:
            found = self._load(server, self._cores)
        except OSError:  # it has just ended
            return
        if self._before is not None and self._before[0] == server:
            _, then, earlier = self._before
            used = (found.server_s - earlier.server_s) / (now - then)
            others = (found.all_s - earlier.all_s) / (now - then) - used
            wanted = apart(used, others, len(self._cores), self._apart)
            if wanted != self._apart:
                self._apart = wanted
                self._tell("placed", server=self._of("server"), others=self._of("others"))
        self._before = server, now, found
        if not (self._apart or self._placed):
            return  # so far everybody is where the kernel put it
        for name, pid in pids.items():
            # A new one has the cores of who started it.
            if self._placed.get(pid) is not self._apart:
                self._place(pid, self._of("server" if name == "server" else "others"))
        self._placed = dict.fromkeys(pids.values(), self._apart)

    def _of(self, whom: str) -> list[int]:
        if not self._apart:
            return self._cores
        return self._cores[:1] if whom == "server" else self._cores[1:]


def usable_cores() -> list[int]:
    """The cores on which processes of ours may be placed; none where it cannot be seen how busy
    they are."""
    if not hasattr(os, "sched_getaffinity") or not Path("/proc/stat").exists():
        return []
    # A container may be shown a table with other numbers than its cores have.
    cores, seen = sorted(os.sched_getaffinity(0)), Path("/proc/stat").read_text().split()
    return cores if {f"cpu{core}" for core in cores} <= set(seen) else []
