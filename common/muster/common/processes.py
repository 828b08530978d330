"""How processes of a fleet live together: none outlives the one that started it, and they take
turns on the machine's cores."""

import ctypes
import gc
import os
import signal
import sys
from contextlib import suppress

PARENT = "MUSTER_PARENT"
"""Environment variable with the process id of the parent, for `die_with_parent`."""

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the thread that started it is gone (Linux).

    A parent that died before this call is noticed by its id: the child was handed to another. Call
    this before imports that take long.

    Args:
        parent: its process id; default: the environment variable PARENT; nothing happens where
            that is not set.
    """
    if parent is None:
        parent = int(os.environ.get(PARENT, "0")) or None
    if parent is None:  # nobody wants it: in a container, whose own end it is
        return
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):  # not Linux: the supervisor's orderly stop remains
        return
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def child_command(module: str, *arguments: str) -> list[str]:
    """The command of a program that dies with this process, from before its imports on; PARENT
    must be in its environment."""
    return [sys.executable, "-m", "muster.common.child", module, *arguments]


def use_batch_scheduling() -> None:
    """Have the kernel let this process's waking threads wait for their turn (Linux, SCHED_BATCH).

    With a device to each process many wake at once, each interrupts another, and every one of them
    finds the caches full of the others. Threads that are made later inherit it.
    """
    with suppress(OSError, AttributeError):  # not Linux, or forbidden: it goes on as before
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def rarely_collect() -> None:
    """Collect garbage that is in cycles seldom, and never look at what is alive now: a collection
    walks through memory that nobody needs, and in a fork it copies what it touches."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)


_GARBAGE = 10_000
"""More objects than at the last collection, some MiB at most; Python's own is 700."""
