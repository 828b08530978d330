"""A disk that is full when a run has ended, and output that nobody takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.common.errors import RunFailed
from muster.emulator import audit, resume, run
from muster.emulator.records.summary import read_summary
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.conftest import MakeScenario

REFUSED = "cannot be written: the operating system refused:"

pytestmark = pytest.mark.usefixtures("nothing_left")

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")


class SmallDisk:
    """A disk of 32 MiB in memory, which a large file fills."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    def fill(self, but: int = 0) -> None:
        """Leave so many bytes free."""
        with open(self._ballast, "wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(self.place).free - but)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


MakeDisk = Callable[[str], Path]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[MakeDisk]:
    """Mounts a disk in memory with these options."""
    place = tmp_path / "small"
    place.mkdir()

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this machine mounts no disks: {done.stderr.strip()}")
        return place

    yield mount
    subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


@pytest.fixture
def small_disk(mounted: MakeDisk) -> SmallDisk:
    return SmallDisk(mounted("size=32m"))


# No file may grow beyond 100 bytes once the server has ended the run.
LIMITED = """
import resource, sys
from pathlib import Path
from muster.common.errors import RunFailed
from muster.emulator import run

def show(event):
    if event["event"] == "ended":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))

try:
    run(Path(sys.argv[1]), out=Path(sys.argv[2]), show=show)
except RunFailed as error:
    print(error)
"""


def test_a_run_whose_summary_does_not_fit_on_the_disk_says_so_and_can_be_concluded(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    (tmp_path / "plain.toml").write_text(scenario().to_toml())
    folder = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "plain.toml", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "the run has ended",
        f"Its summary and report {REFUSED} {folder}/summary.json: File too large",
        f"Free some space, then write them with: muster run --resume {folder}",
    ]
    assert not list(folder.glob("*.tmp"))
    assert read_summary(folder) == {}
    assert resume(folder, report=False).status == "completed"
    assert read_summary(folder)["status"] == "completed"


# The supervisor dies before it can inject the fault of round 8.
KILLED_IN_ROUND_7 = """
import os, signal, sys
from pathlib import Path
from muster.emulator import run

def show(event):
    if event["event"] == "round_committed" and event["round"] == 7:
        os.kill(os.getpid(), signal.SIGKILL)

run(Path(sys.argv[1]), out=Path(sys.argv[2]), show=show)
"""


def test_a_disk_may_be_full_from_the_first_round_of_a_resumed_run_on(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    full = {"do": "disk-full", "target": {"role": "server"}, "when": {"round": 8}, "for_s": 1.0}
    # Rounds of milliseconds: the run must last until the new supervisor has read of round 8.
    planned = scenario(server={"rounds": 400, "evaluate_every": 100}, faults=[full])
    (tmp_path / "full.toml").write_text(planned.to_toml())
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED_IN_ROUND_7, str(tmp_path / "full.toml"), str(folder)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    done = resume(folder, report=False)
    assert done.status == "completed"
    assert done.summary["vacuous"] == []
    undisturbed = planned.model_copy(update={"faults": []})
    assert simulate_run(undisturbed, tmp_path / "alone") == "completed"
    alone = json.loads((tmp_path / "alone/summary.json").read_text())
    assert done.summary["model_sha256"] == alone["model_sha256"]
    assert audit(done.folder).agrees


@ROOT_ONLY
@pytest.mark.parametrize("dimension", [2000, pytest.param(30_000, marks=pytest.mark.soak)])
def test_a_run_waits_for_room_on_a_full_disk_and_goes_on_to_the_same_model(
    small_disk: SmallDisk, scenario: MakeScenario, tmp_path: Path, dimension: int
) -> None:
    planned = scenario(
        task={"name": "linear", "dimension": dimension},
        training={"learning_rate": 1e-6},
        groups=[{"name": "dev", "count": 2}],
        server={"rounds": 50, "evaluate_every": 10, "keep_updates": True},
    )
    assert simulate_run(planned, tmp_path / "alone") == "completed"
    # The run fills the disk itself, however fast it is.
    written = sum(file.stat().st_size for file in (tmp_path / "alone").rglob("*"))
    small_disk.fill(but=written // 2)
    seen = list[str]()

    def show(event: dict[str, object]) -> None:
        seen.append(str(event["event"]))
        if event["event"] == "disk_ran_full":
            small_disk.free()

    def free_if_silent() -> None:
        """Make room also if the disk has no room for the event that says so."""
        full = 0
        while not over.wait(1.0):
            full = 0 if shutil.disk_usage(small_disk.place).free else full + 1
            if full == 3:
                small_disk.free()

    over = threading.Event()
    freeing = threading.Thread(target=free_if_silent)
    freeing.start()
    try:
        done = run(planned, out=small_disk.place / "run", show=show, report=False)
    finally:
        over.set()
        freeing.join()
    assert done.status == "completed"
    assert {"disk_ran_full", "disk_has_room"} <= set(seen)
    alone = json.loads((tmp_path / "alone/summary.json").read_text())
    assert done.summary["model_sha256"] == alone["model_sha256"]
    assert audit(done.folder).agrees


def muster(*arguments: object, first: str = "pass") -> subprocess.CompletedProcess[str]:
    """Run a command, after a statement that changes its process."""
    program = f"{first}; from muster.cli.entry import main; main()"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def assert_clear(done: subprocess.CompletedProcess[str], lacks: str) -> None:
    """A run ended with a few lines that name what ran out."""
    assert done.returncode in (1, 2)
    said = done.stderr[done.stderr.index("error: ") :]
    assert re.search(lacks, said), said
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 4


@ROOT_ONLY
@pytest.mark.parametrize(
    ("options", "lacks"),
    [
        pytest.param("size=64k", "room", marks=pytest.mark.soak),
        ("size=256k", "room"),
        ("size=16m,nr_inodes=4", "inodes"),
        pytest.param("size=16m,nr_inodes=20", "inodes", marks=pytest.mark.soak),
        pytest.param("size=16m,nr_inodes=45", "inodes", marks=pytest.mark.soak),
    ],
)
def test_a_run_on_a_disk_that_is_too_small_says_so_and_goes_on_when_there_is_room(
    mounted: MakeDisk, scenario: MakeScenario, tmp_path: Path, options: str, lacks: str
) -> None:
    planned = scenario(server={"rounds": 5, "stall_s": 1.0})
    file, folder = tmp_path / "small.toml", mounted(options) / "run"
    file.write_text(planned.to_toml())
    assert_clear(muster("run", file, "--out", folder, "--quiet"), lacks)
    mounted("remount,size=32m,nr_inodes=10000")
    more = ["--resume", folder] if folder.exists() else [file, "--out", folder]
    again = muster("run", *more, "--quiet")
    assert again.returncode == 0, again.stderr
    assert simulate_run(planned, tmp_path / "alone") == "completed"
    alone = json.loads((tmp_path / "alone/summary.json").read_text())
    assert read_summary(folder)["model_sha256"] == alone["model_sha256"]


@pytest.mark.parametrize("mebi", [400, 650, 725])
def test_a_run_without_memory_says_so(scenario: MakeScenario, tmp_path: Path, mebi: int) -> None:
    """At each of these limits another program dies in another way: of an import, of a signal, or
    because it can start no thread."""
    file = tmp_path / "plain.toml"
    file.write_text(scenario().to_toml())

    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({mebi << 20},) * 2)"
    done = muster("run", file, "--out", tmp_path / "run", "--quiet", first=limited)
    if done.returncode:
        assert_clear(done, "memory|ulimit -v")


def test_an_error_of_the_operating_system_fails_the_run_and_nothing_is_left(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    folder = tmp_path / "run"

    def show(event: dict[str, object]) -> None:
        if event["event"] == "server_started":  # before the devices' plan is written
            raise OSError(28, "No space left on device", "somewhere")

    with pytest.raises(RunFailed, match=r"refused: somewhere: No space left on device") as error:
        run(scenario(), out=folder, show=show)
    assert f"muster run --resume {folder}" in str(error.value)


def test_a_run_whose_output_nobody_takes_goes_on_to_its_end(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    (tmp_path / "plain.toml").write_text(scenario().to_toml())
    folder = tmp_path / "run"
    program = "from muster.cli.entry import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, "run", tmp_path / "plain.toml", "--out", folder],
            stdout=full,
            stderr=full,
            check=False,
        )
    assert done.returncode == 1
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        assert ledger.execute("SELECT status FROM run").fetchone() == ("completed",)
    assert json.loads((folder / "summary.json").read_text())["status"] == "completed"
    assert (folder / "report.html").exists()
