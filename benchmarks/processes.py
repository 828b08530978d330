"""What Linux says about processes in /proc: their children, processor time and memory."""

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.1


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, path.read_text().split())
    return found


def tree(pid: int) -> Iterator[int]:
    """A process and all that it has started, directly or not."""
    yield pid
    for child in children(pid):
        yield from tree(child)


def cpu_s(pid: int) -> float:
    """The seconds of processor time that a process has used so far.

    Raises:
        OSError: it has ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def precise_cpu_s(pid: int) -> float:
    """The same to a nanosecond, without the threads of the process that have ended."""
    used = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            used += int((thread / "schedstat").read_text().split()[0])
    return used / 1e9


def resident_mib(pid: int) -> float:
    """The memory of a process that is not swapped out, MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def rollup(pid: int) -> dict[str, int]:
    """The memory of a process in KiB, by kind, for example "Pss".

    Raises:
        OSError: it has ended.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}


class ProcessorTimes:
    """Adds up the processor time of this process's children by program, from a thread.

    The last LOOK_S of each process are left out.
    """

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._used: dict[int, tuple[str, float]] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> dict[str, float]:
        """Stop watching, and return the seconds by program, the most first."""
        self._ending.set()
        self._thread.join()
        sums: dict[str, float] = defaultdict(float)
        for name, seconds in self._used.values():
            sums[name] += seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def _watch(self) -> None:
        while not self._ending.wait(LOOK_S):
            for pid in [*tree(os.getpid())][1:]:
                with suppress(OSError, KeyError):  # it has ended
                    # A new process first has the command of its parent.
                    name = _program(pid) or self._used[pid][0]
                    self._used[pid] = name, cpu_s(pid)


def _program(pid: int) -> str:
    """The module that a process of muster runs; "command" for the command itself, and nothing if
    the process has ended."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    if words == [""]:
        return ""
    modules = (word for word in words if word.startswith("muster.") and "child" not in word)
    return next(modules, "command")
