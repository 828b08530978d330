"""Random faults and kills in random fleets over real processes: a short form of `make chaos`."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.chaos.run_processes import RunProcess, kill_process, run_processes

pytestmark = pytest.mark.usefixtures("nothing_left")

SEEDS = 2


@pytest.mark.timeout(1200)
def test_random_faults_and_kills_violate_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "muster.chaos", "--lockstep"]
    played = subprocess.run(
        [*command, "--number", str(SEEDS), "--first", "1000000", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    last = played.stdout.splitlines()[-1]
    assert last.startswith(f"{SEEDS} runs, {SEEDS} of them with the model of the undisturbed run")
    assert last.endswith("; 0 runs violate")


def test_a_process_of_a_run_is_found_by_its_log_and_killed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with (tmp_path / "logs/dev-0001.log").open("wb") as log:
        sleeping = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)"], stderr=log
        )
    try:
        [found] = run_processes(tmp_path)
        assert found == RunProcess(sleeping.pid, "device", "dev-0001")
        assert not kill_process(RunProcess(sleeping.pid, "gateway", "dev-0001"), tmp_path)
        assert not kill_process(found, tmp_path / "other")
        assert sleeping.poll() is None
        assert kill_process(found, tmp_path)
        assert sleeping.wait(timeout=30) == -9
    finally:
        sleeping.kill()
        sleeping.wait()
    assert not kill_process(found, tmp_path)
