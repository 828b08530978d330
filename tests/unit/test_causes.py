"""Causes of errors that lie outside muster, as a person reads them."""

import errno
import os
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.common import causes
from muster.common.causes import outer_cause
from muster.common.errors import reason_of
from muster.common.files import os_reason
from muster.common.plugins import Registry
from muster.emulator.launch.starting import quoted
from muster.server.aggregators import Aggregator

UNLIMITED, GIGABYTE = resource.RLIM_INFINITY, 1 << 30

LACKS_OF_MEMORY = [
    MemoryError(),
    RuntimeError("can't start new thread"),
    OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] not enough memory: you tried to allocate"),
]


def limit(monkeypatch: pytest.MonkeyPatch, bytes: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (bytes, bytes))


@pytest.mark.parametrize("error", LACKS_OF_MEMORY, ids=lambda error: str(error)[:20])
def test_every_error_for_want_of_memory_says_so_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    limit(monkeypatch, GIGABYTE)
    said = reason_of(error)
    assert said.startswith("no memory left (")
    assert said.endswith("each program may address 1024 MiB (ulimit -v): raise the limit")
    limit(monkeypatch, UNLIMITED)
    assert reason_of(error).endswith("let more devices share a process (devices_per_process)")


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("CUDA out of memory")])
def test_other_errors_have_no_outer_cause(error: Exception) -> None:
    assert outer_cause(error) == ""


@pytest.mark.parametrize(
    ("blocks", "left", "lacks"), [(0, 9, "room"), (5, 0, "inodes"), (5, 9, "room or inodes")]
)
def test_a_full_disk_says_what_it_has_run_out_of(
    monkeypatch: pytest.MonkeyPatch, blocks: int, left: int, lacks: str
) -> None:
    found = SimpleNamespace(f_bavail=blocks, f_files=10, f_favail=left)
    monkeypatch.setattr(os, "statvfs", lambda folder: found)
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/run/file")
    hint = f"(its disk has no {lacks} left; see df, df -i, and free some)"
    assert reason_of(error).endswith(f"/run/file: No space left on device {hint}")
    assert os_reason(error).endswith(hint)


def test_a_log_that_tells_of_want_of_memory_is_quoted_by_that_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit(monkeypatch, GIGABYTE)
    path = tmp_path / "dev-0000.log"
    log = "\n".join(["Traceback", *["  File x"] * 9, "RuntimeError: can't start new thread", "end"])
    assert quoted(log, path).splitlines() == [
        f". The last lines of {path}:",
        "  | RuntimeError: can't start new thread",
        "  | each program may address 1024 MiB (ulimit -v): raise the limit",
    ]
    assert "It may have found no memory: each program may address 1024 MiB" in quoted("", path)


def test_an_error_in_own_code_names_the_innermost_line_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever it is, and also if it is raised in what the code calls."""
    module = tmp_path / "rules_of_mine.py"
    module.write_text(
        "from muster.server.aggregators import FedAvg\n"
        "class Rule(FedAvg):\n"
        "    def weight(self, contribution, state):\n"
        "        return helper(contribution)\n"
        "def helper(text):\n"
        "    return text.index('nothing')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found: type[Any] = Registry("aggregator", "none", {}, [Aggregator]).find("rules_of_mine:Rule")
    with pytest.raises(ValueError, match="substring") as raised:
        found().weight("text", {})
    assert reason_of(raised.value) == (
        f"{causes.OWN_CODE_FAILED}: ValueError: substring not found ({module}, line 6, in helper)"
    )
    del sys.modules["rules_of_mine"]
