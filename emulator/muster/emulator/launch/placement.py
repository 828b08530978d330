"""Places a run's processes on cores (Linux): while rounds wait for the server, it has its own core.

If the server and devices take turns on a core, they evict each other's data from its caches. When
the server had one of two cores for itself, a round of 10 device processes with nothing to train
took 0.88 of its usual time, but a round of 100 devices, which need both cores, took 1.2 of it. So
the placement depends on how busy the server and the other processes are. The evaluation counts as
one of the others.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from muster.common.clock import Clock
from muster.common.events import Placed, Tell

_LOOK_S = 0.5

_BUSY = 0.6
"""Share of a core from which on a busy server counts as the bottleneck of rounds."""

_ENTER, _STAY = 1.35, 1.5
"""How many times as busy as the server each of the other cores may be, so that the server gets a
core of its own and so that it keeps it."""

_TICKS = os.sysconf("SC_CLK_TCK")


class Load(NamedTuple):
    """CPU seconds used so far: by the server, and by everything on the cores."""

    server_s: float
    all_s: float


def apart(server: float, others: float, cores: int, already: bool) -> bool:
    """Whether the server gets a core of its own.

    Args:
        server, others: CPU seconds used per second, by the server and by everything else.
        already: whether the server already has a core of its own.
    """
    most = (_STAY if already else _ENTER) * server
    return cores > 1 and server >= _BUSY and others <= most * (cores - 1)


def load(server: int, cores: Sequence[int]) -> Load:
    """CPU seconds used so far by the process `server`, and by everything on `cores`.

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
    """Make all threads of a process run on `cores`. A process that has ended is ignored."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                os.sched_setaffinity(int(thread), cores)


class Placement:
    """Keeps a run's processes on the right cores.

    Args:
        pids: returns the process ids of the run, by name; the server's name is "server".
        cores: the cores that the run may use.
        tell: records an event in the journal.
    """

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int]],
        cores: Sequence[int],
        clock: Clock,
        tell: Tell,
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
        """Call `look` twice per second; never returns."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + _LOOK_S)
            self.look()

    def look(self) -> None:
        """Decide by the CPU time used since the last call whether the server gets a core of its
        own, and move all processes that are on the wrong cores."""
        pids = self._pids()
        server, now = pids.get("server"), self._clock.monotonic()
        if server is None:
            return
        try:
            found = self._load(server, self._cores)
        except OSError:  # the server has just ended
            return
        if self._before is not None and self._before[0] == server:
            _, then, earlier = self._before
            used = (found.server_s - earlier.server_s) / (now - then)
            others = (found.all_s - earlier.all_s) / (now - then) - used
            wanted = apart(used, others, len(self._cores), self._apart)
            if wanted != self._apart:
                self._apart = wanted
                self._tell(Placed(self._of("server"), self._of("others")))
        self._before = server, now, found
        if not (self._apart or self._placed):
            return  # so far every process is where the kernel put it
        for name, pid in pids.items():
            # A new process has inherited the cores of the process that started it.
            if self._placed.get(pid) is not self._apart:
                self._place(pid, self._of("server" if name == "server" else "others"))
        self._placed = dict.fromkeys(pids.values(), self._apart)

    def _of(self, role: str) -> list[int]:
        """The cores for the role "server" or "others"."""
        if not self._apart:
            return self._cores
        return self._cores[:1] if role == "server" else self._cores[1:]


def usable_cores() -> list[int]:
    """The cores on which this run's processes may be placed; none if the system does not show how
    busy its cores are."""
    if not hasattr(os, "sched_getaffinity") or not Path("/proc/stat").exists():
        return []
    # In a container, the numbers in this table may differ from the numbers of its cores.
    cores, seen = sorted(os.sched_getaffinity(0)), Path("/proc/stat").read_text().split()
    return cores if {f"cpu{core}" for core in cores} <= set(seen) else []
