"""Programs that a command starts before it knows what they are for."""

import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from muster.common.early_start import NURSERY, start_early, take_early
from muster.common.processes import PARENT

DEADLINE_S = 60.0
"""Far beyond what anything here takes."""


def test_a_program_that_is_not_needed_ends_by_itself() -> None:
    early = start_early(NURSERY)
    assert take_early(NURSERY) is early
    assert take_early(NURSERY) is None, "it is taken once"
    early.control.close()
    assert early.process.wait(DEADLINE_S) == 0


def test_a_program_that_has_died_is_not_taken() -> None:
    start_early("muster.no_such_program").process.wait(DEADLINE_S)
    assert take_early("muster.no_such_program") is None


def test_a_run_that_is_refused_leaves_no_process() -> None:
    muster = Path(sys.executable).with_name("muster")
    with subprocess.Popen([muster, "run", "missing.toml"], stderr=subprocess.PIPE) as refused:
        _, told = refused.communicate(timeout=DEADLINE_S)
    assert refused.returncode == 2, told
    while any(_is_child(path, refused.pid) for path in Path("/proc").glob("[0-9]*")):
        pass


def test_a_machine_that_lacks_files_is_told_by_the_run() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))

    muster = Path(sys.executable).with_name("muster")
    refused = subprocess.run(
        [muster, "run", "examples/digits.toml"],
        cwd=Path(__file__).parents[2],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: open files: up to 6, ")


def _is_child(process: Path, parent: int) -> bool:
    """Whether a live process was started by muster's process `parent`."""
    with suppress(OSError):
        return f"{PARENT}={parent}".encode() in (process / "environ").read_bytes().split(b"\0")
    return False
