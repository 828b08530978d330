"""Limits of programs: what the kernel measures of them, that they end with the supervisor, and runs
in lockstep whose model they do not change."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from muster.common.clock import WallClock
from muster.emulator import audit, run
from muster.emulator.launch.local_program import LocalProgram
from muster.emulator.launch.pausing import Pauses
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

MEBI = 1 << 20

BUSY = "while True: pass"

# Says for every line whether it gets 64 MiB, and whether a file takes a byte.
ASKING = """
import sys, tempfile
file = tempfile.TemporaryFile(buffering=0)
for line in sys.stdin:
    try:
        got = len(bytearray(64 << 20)) > 0
    except MemoryError:
        got = False
    try:
        wrote = file.write(b"x") == 1
    except OSError:
        wrote = False
    print(got, wrote, flush=True)
"""


class Watched:
    """A program, and the watchdog that limits it."""

    def __init__(self, code: str) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.program = subprocess.Popen([sys.executable, "-c", code], **pipes)
        module = "muster.emulator.launch.pause_watchdog"
        self.watchdog = subprocess.Popen([sys.executable, "-m", module], **pipes)

    def order(self, **request: Any) -> dict[str, Any]:
        assert self.watchdog.stdin is not None
        assert self.watchdog.stdout is not None
        self.watchdog.stdin.write(json.dumps(request) + "\n")
        self.watchdog.stdin.flush()
        answer: dict[str, Any] = json.loads(self.watchdog.stdout.readline())
        return answer

    def limit(self, what: str, value: float) -> None:
        pid = self.program.pid
        assert self.order(limit="x", what=what, value=value, pid=pid)["failed"] == ""

    def ask(self) -> str:
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write("?\n")
        self.program.stdin.flush()
        return str(self.program.stdout.readline()).strip()

    def end_watchdog(self) -> None:
        self.watchdog.communicate()  # closes its input, as the kernel does when a supervisor dies

    def cpu_s(self) -> float:
        use = LocalProgram(self.program.pid).use()
        assert use is not None
        return use.cpu_s


@pytest.fixture
def watch() -> Iterator[Callable[[str], Watched]]:
    made: list[Watched] = []

    def make(code: str) -> Watched:
        made.append(Watched(code))
        return made[-1]

    yield make
    for each in made:
        for process in (each.watchdog, each.program):
            process.kill()
            if process.returncode is None:
                process.communicate()


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_busy_process_gets_its_share_of_a_core_and_all_of_it_when_the_watchdog_ends(
    watch: Callable[[str], Watched],
) -> None:
    watched = watch(BUSY)
    wait_until(lambda: watched.cpu_s() > 0.1)
    watched.limit("cpu", 0.2)
    began, before = time.monotonic(), watched.cpu_s()
    wait_until(lambda: watched.cpu_s() > before + 0.2)
    # At most its share; a machine with other work may give it less. 10 ms is the kernel's step.
    took_s = time.monotonic() - began
    assert watched.cpu_s() - before <= 0.2 * took_s * 1.25 + 0.02
    assert watched.order(held_back="x")["held_back"] > 3
    watched.end_watchdog()
    assert not LocalProgram(watched.program.pid).is_paused()
    wait_until(lambda: watched.cpu_s() > before + 0.5)


def test_a_pause_holds_whatever_the_share_and_a_share_goes_on_after_it(
    watch: Callable[[str], Watched],
) -> None:
    watched = watch(BUSY)
    wait_until(lambda: watched.cpu_s() > 0.05)
    watched.limit("cpu", 0.5)
    watched.order(pause="x", pid=watched.program.pid)
    wait_until(lambda: LocalProgram(watched.program.pid).is_paused())
    before = watched.cpu_s()
    for _ in range(100):  # several periods
        watched.order(keep=True)
        time.sleep(0.003)
    assert watched.cpu_s() == before
    watched.order(resume="x")
    wait_until(lambda: watched.cpu_s() > before)


@pytest.mark.parametrize("how", ["freed", "orphaned"])
def test_memory_and_files_have_limits_until_they_are_freed(
    watch: Callable[[str], Watched], how: str
) -> None:
    watched = watch(ASKING)
    assert watched.ask() == "True True"
    before = resource.prlimit(watched.program.pid, resource.RLIMIT_DATA)
    watched.limit("memory", 32 * MEBI)
    assert watched.ask() == "False True"
    watched.limit("files", 0)
    assert watched.ask() == "False False"
    if how == "freed":
        watched.order(free="x", what="memory")
        assert watched.ask() == "True False"
        watched.order(free="x", what="files")
    else:
        watched.end_watchdog()
    assert watched.ask() == "True True"
    assert resource.prlimit(watched.program.pid, resource.RLIMIT_DATA) == before


def test_a_process_that_has_ended_refuses_no_limit(watch: Callable[[str], Watched]) -> None:
    watched = watch("")
    watched.program.communicate()
    pid = watched.program.pid
    for request in ({"limit": "x", "what": "cpu", "value": 0.5}, {"pause": "x"}):
        assert watched.order(**request, pid=pid) == {"failed": "", "ended": True}


async def test_an_answer_whose_asker_was_cancelled_is_not_taken_for_the_next_one(
    watch: Callable[[str], Watched],
) -> None:
    program, pauses = watch(ASKING).program, Pauses(WallClock())
    try:
        await pauses.resume("x")  # starts the watchdog
        asking = asyncio.create_task(pauses.limit("x", "cpu", 0.5, {"pid": -1}))
        for _ in range(5):  # until it waits for the answer
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled()
        assert await pauses.limit("y", "files", MEBI, {"pid": program.pid}) == ""
    finally:
        await pauses.close()


def test_programs_that_lack_resources_change_nothing_in_lockstep(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    faults: list[dict[str, Any]] = [
        {"do": "cpu-limit", "target": {"names": ["dev-0001"]}, "when": {"round": 3}, "for_s": 1.0},
        {
            "do": "memory-limit",
            "mib": 16,
            "target": {"names": ["dev-0002"]},
            "when": {"round": 6},
            "for_s": 0.5,
        },
        {"do": "disk-full", "target": {"role": "server"}, "when": {"round": 9}, "for_s": 1.0},
        {"do": "restart", "target": {"role": "server"}, "when": {"round": 100}},
    ]
    planned = scenario(
        task={"name": "digits", "model": {"kind": "mlp", "hidden": [64]}},
        training={"learning_rate": 0.05, "local_steps": 100, "batch_size": 8},
        server={"rounds": 200, "evaluate_every": 100},  # not over before the restart is seen
        faults=faults,
    )
    done = run(planned, out=tmp_path / "run", report=False)
    alone = planned.model_copy(update={"faults": []})
    assert simulate_run(alone, tmp_path / "alone") == "completed"
    undisturbed = json.loads((tmp_path / "alone/summary.json").read_text())
    assert done.summary["model_sha256"] == undisturbed["model_sha256"]
    assert done.summary["vacuous"] == []
    assert not list(done.ledger.events("died"))
    seen = {fault["fault"]: fault["seen"] for fault in done.summary["faults"]}
    assert "held back" in seen["cpu-limit-1"]
    assert seen["disk-full-1"] == "the server waits for room"
    (waited,) = done.ledger.events("disk_has_room")
    assert 0 < waited["seconds"]
    verified = {event["fault"] for event in done.ledger.events("fault_verified")}
    assert {"cpu-limit-1", "memory-limit-1", "disk-full-1"} <= verified
    assert not (done.folder / "no-room").exists()
    assert audit(done.folder).agrees
    assert os.path.getsize(done.folder / "logs/server.log") == 0
