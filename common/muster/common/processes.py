"""Settings of the processes of a fleet, so that none outlives its parent and they share the cores
and the memory of the machine well."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from muster.common.environment import settled

PARENT = "MUSTER_PARENT"
"""Environment variable that has the process id of the parent, for `die_with_parent`."""

OWN_CODE = "MUSTER_OWN_CODE"
"""Environment variable with which `muster.common.own_code` announces code of the user's own."""

LOADED = "--loaded"
"""Before the module in a child's command: import it, and wait for a line before it begins."""

_PR_SET_PDEATHSIG = 1
_MADV_COLLAPSE = 25
_HUGE_BYTES = 2 << 20


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when the thread that started it is gone (Linux).

    If the parent died before this call, the process has another parent by now, and ends itself.
    Call this before imports that take long.

    Args:
        parent: process id of the parent; None: the value of the environment variable PARENT. If
            that is not set, nothing happens.
    """
    if parent is None:
        parent = int(os.environ.get(PARENT, "0")) or None
    if parent is None:  # not wanted, for example in a container, which ends its processes itself
        return
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):  # not Linux: only the supervisor's orderly stop remains
        return
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def child_command(module: str, *arguments: str) -> list[str]:
    """The command of a program that dies with this process, even during the program's imports.

    Its environment must be `child_environment`.
    """
    return [sys.executable, *program_arguments(module, *arguments)]


def program_arguments(module: str, *arguments: str) -> list[str]:
    """The arguments with which Python starts a program of a run. With `-P` it imports nothing from
    the current directory."""
    return ["-P", "-m", "muster.common.child", module, *arguments]


def child_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a program that this process starts, and that dies with it."""
    return {**settled(inherited), PARENT: str(os.getpid())}


def use_batch_scheduling() -> None:
    """Ask the kernel for batch scheduling: waking threads wait for their turn (Linux, SCHED_BATCH).

    If every device has its own process, many of them wake at once. Without batch scheduling they
    interrupt each other, and each finds the caches full of the data of others. Threads that are
    made later inherit the setting.
    """
    with suppress(OSError, AttributeError):  # not Linux, or forbidden: keep the default
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def use_huge_pages() -> None:
    """Ask the kernel to move the memory of this process into pages of 2 MiB (Linux 6.1).

    A fork copies the table of all pages, and a forked process goes through it when it ends. Before
    the first fork of many this saves more than it costs.
    """
    with suppress(OSError, AttributeError):  # not Linux: the pages stay small
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for start, end in _anonymous_memory():
            first = -(-start // _HUGE_BYTES) * _HUGE_BYTES
            whole = (end - first) // _HUGE_BYTES * _HUGE_BYTES
            if whole > 0:
                advise(first, whole, _MADV_COLLAPSE)  # what cannot be moved stays where it is


def _anonymous_memory() -> Iterator[tuple[int, int]]:
    """The intervals of addresses with memory that this process has written and that is no file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights.startswith("rw") and name in ([], ["[heap]"]):
            start, end = addresses.split("-")
            yield int(start, 16), int(end, 16)
