"""Causes of errors that lie outside muster: code of the user's own, and a machine that has no
memory, no room on a disk or no inodes left.

Whatever ends a program or a run asks here first, so that a person reads what to mend, in one
sentence and without a traceback.
"""

import errno
import os
import resource
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OWN_CODE_FAILED = "code of your own failed"
"""With these words begins the reason of every error in code of the user's own."""

EVALUATION_ENDED = "the evaluation process ended"
"""With these words begins the reason of a run that ended because its evaluation did."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_NO_MEMORY = (
    "MemoryError", "start new thread", "pthread_create failed", "annot allocate memory",
    "failed to map segment", "not enough memory", "bad_alloc", "out of memory",
)  # fmt: skip
"""What Python, the C++ library, the loader, gRPC, torch and SQLite say if there is no memory."""

_LONGEST = 300
"""The most characters of an error's own text in a reason."""

own_modules = set[str]()
"""The top-level modules of the user that this process has imported."""


def note_own(module: str) -> None:
    """Note that a module, with the parts of its package, is code of the user's own."""
    top = module.partition(".")[0]
    if top != "muster":
        own_modules.add(top)


def outer_cause(error: BaseException) -> str:
    """The cause of an error as a sentence for a person; "" if it lies in muster."""
    if place := own_place(error):
        return f"{OWN_CODE_FAILED}: {_brief(error)} ({place})"
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"the operating system refused: {_named(error)}{error.strerror}{room_hint(error)}"
    if found := memory_line(f"{type(error).__name__}: {error}"):
        return f"no memory left ({found[:_LONGEST]}); {memory_advice()}"
    return ""


def own_place(error: BaseException) -> str:
    """Where in code of the user's own an error was raised: file, line and function, the innermost
    ones; "" if it was not raised there."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if _top_module(frame.f_globals) in own_modules:
            return f"{frame.f_code.co_filename}, line {line}, in {frame.f_code.co_name}"
    return ""


def _top_module(variables: Mapping[str, Any]) -> str:
    """The top-level module with these global variables. The program itself is called `__main__`, as
    is the script or notebook from which a model was pickled, which has no specification here."""
    name = getattr(variables.get("__spec__"), "name", variables.get("__name__"))
    return str(name).partition(".")[0]


def _brief(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]


def _named(error: OSError) -> str:
    path = error.filename2 or error.filename
    return f"{path}: " if path is not None else ""


def room_hint(error: OSError) -> str:
    """What a disk has run out of, if an error of a file says that it is full, as a parenthesis."""
    path = error.filename2 or error.filename
    if error.errno not in _FULL or path is None:
        return ""
    lacks = lack_of(Path(os.fsdecode(path)).parent) or "room or inodes"
    return f" (its disk has no {lacks} left; see df, df -i, and free some)"


def lack_of(folder: Path) -> str:
    """What the disk of a folder has run out of: "room" or "inodes"; "" if it has both."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    return "room" if not disk.f_bavail else "inodes" if disk.f_files and not disk.f_favail else ""


def memory_line(text: str) -> str:
    """The last line of a text that says that there was no memory for a program; "" if none does."""
    for line in reversed(text.splitlines()):
        if "CUDA" not in line and any(words in line for words in _NO_MEMORY):
            return line.strip()
    return ""


def memory_limit() -> str:
    """How much memory the operating system lets each program address; "" if that is not limited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"each program may address {limit >> 20} MiB (ulimit -v)"


def memory_advice() -> str:
    """What to do if there is no memory."""
    if limit := memory_limit():
        return f"{limit}: raise the limit"
    return "free some memory, or let more devices share a process (devices_per_process)"
