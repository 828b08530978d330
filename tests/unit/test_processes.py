"""Programs die with the process that started them, also while they still import."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

PROGRAMS = [
    "muster.client.processes.nursery",
    "muster.client.processes.spawned",
    "muster.server",
    "muster.server.evaluation.process",
    "muster.emulator.gateway",
    "muster.simulation.worker_program",
]

DEADLINE_S = 60.0
"""Far beyond what anything here takes."""

PARENT = """
import os, subprocess, sys
from muster.common.processes import PARENT, child_command
command = child_command(sys.argv[1])
child = subprocess.Popen(command, env={**os.environ, PARENT: str(os.getpid())})
child.wait()
"""

SLOW = """
import os, signal
os.write(1, f"{os.getpid()}\\n".encode())
signal.pause()
"""
"""A module whose import never ends, under the name of one that every program imports."""


def comes(file: int, what: str) -> None:
    poll = select.poll()  # Unlike select() it takes descriptors above 1,023.
    poll.register(file, select.POLLIN)
    assert poll.poll(DEADLINE_S * 1000), f"waited {DEADLINE_S:g} s for {what}"


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_whose_parent_dies_while_it_imports_dies_too(
    program: str, tmp_path: Path
) -> None:
    (tmp_path / "pydantic.py").write_text(SLOW)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    with parent:
        assert parent.stdout is not None
        comes(parent.stdout.fileno(), f"the first import of {program}")
        child = int(parent.stdout.readline())
        handle = os.pidfd_open(child)
        try:
            parent.kill()
            comes(handle, f"the death of {program}")
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)


def test_a_program_whose_parent_is_gone_already_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("print('imported')")
    ended = subprocess.run(
        [sys.executable, "-m", "muster.common.child", "late"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "MUSTER_PARENT": "1"},
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")


def test_a_program_reads_its_arguments_as_if_it_were_started_alone(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("import sys; print(__name__, sys.argv[1:])")
    ended = subprocess.run(
        [sys.executable, "-m", "muster.common.child", "alone", "a", "b"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert ended.stdout == b"__main__ ['a', 'b']\n"


def test_a_program_does_not_look_for_garbage_between_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text("alive = [[] for _ in range(200_000)]")
    (tmp_path / "program.py").write_text(
        "import gc, many; print(sum(each['collections'] for each in gc.get_stats()))"
    )

    def collections(*command: str) -> int:
        ended = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            check=True,
        )
        return int(ended.stdout)

    assert collections("-m", "program") > 50
    # What came before `import_quickly`, mostly of the interpreter's own start.
    assert collections("-m", "muster.common.child", "program") < 30


HUGE_PAGES = """
from pathlib import Path
from muster.common.processes import use_huge_pages

def huge_kib():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))

memory = [number.to_bytes(4, "big") * 250 for number in range(20_000)]
small = huge_kib()
use_huge_pages()
assert all(piece == number.to_bytes(4, "big") * 250 for number, piece in enumerate(memory))
print(huge_kib() - small)
"""


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists()
    or tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1),
    reason="the kernel has no huge pages on request",
)
def test_memory_moves_into_huge_pages_unchanged() -> None:
    ended = subprocess.run([sys.executable, "-c", HUGE_PAGES], capture_output=True, check=True)
    assert int(ended.stdout) >= 10_000  # KiB, of the 20,000 that were filled
