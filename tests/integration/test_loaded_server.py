"""A server whose program is loaded before it begins."""

import subprocess
from pathlib import Path

import pytest

from muster.common.clock import WallClock
from muster.common.processes import LOADED, PARENT, child_command
from muster.emulator.launch.processes import Processes


@pytest.mark.parametrize(("said", "status"), [("", 0), ("\n", 1)])
def test_a_loaded_program_begins_when_it_is_told_to(tmp_path: Path, said: str, status: int) -> None:
    command = child_command(LOADED, "muster.server", str(tmp_path / "none"))
    found = subprocess.run(
        command, input=said, text=True, capture_output=True, timeout=300, env={PARENT: "0"}
    )
    assert found.returncode == status, "only a server that has begun misses its settings"
    assert ("server.json" in found.stderr) == bool(status)


def children() -> list[int]:
    """The child processes of this one."""
    found = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return [int(pid) for line in found for pid in line.split()]


async def test_a_server_that_never_began_is_ended_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    programs = Processes(tmp_path, WallClock(), lambda *_: None)
    await programs.load_server()
    await programs.load_server()
    assert not programs.alive, "it is no program of the run yet"
    (loaded,) = children()
    await programs.close()
    assert loaded not in children()
