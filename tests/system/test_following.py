"""`muster status` and `watch` of a run that is going on, and of the same run when it has ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.emulator.following.following import status_of, watch
from muster.emulator.run_folder.control import stop

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]


def watched_until_ctrl_c(folder: Path) -> str:
    """What `muster watch` prints until a Ctrl-C after its first round, which is no failure."""
    with subprocess.Popen(
        [*MUSTER, "watch", folder], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        said = next(line for line in watching.stdout if "round " in line and " loss " in line)
        watching.send_signal(signal.SIGINT)
        said += watching.stdout.read()
    assert watching.returncode == 0
    return said


def test_a_run_is_followed_from_its_beginning_to_its_end(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(server={"rounds": 100_000, "evaluate_every": 2})
    (tmp_path / "scenario.toml").write_text(planned.to_toml())
    folder = tmp_path / "run"
    run = subprocess.Popen(
        [*MUSTER, "run", tmp_path / "scenario.toml", "--out", folder, "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        journal = folder / "journal.jsonl"
        while not (journal.exists() and b"round_committed" in journal.read_bytes()):
            assert run.poll() is None
        seen = []
        for event in watch(folder):
            seen.append(event)
            if len(seen) == 20:
                assert "run: the run goes on" in watched_until_ctrl_c(folder)
                found = status_of(folder)
                assert (found.state, found.rounds, found.present) == ("running", 100_000, 3)
                assert found.round >= 1
                assert found.bytes_up > 0
                stop(folder)
    except BaseException:
        run.terminate()  # otherwise it would go on for hours
        raise
    finally:
        run.wait(60)
    # Nothing is missing and nothing is there twice, although the journal and the server overlap.
    rounds = [event["round"] for event in seen if event["event"] == "round_committed"]
    assert rounds == list(range(1, len(rounds) + 1))
    assert "ended" in [event["event"] for event in seen]
    said = subprocess.run([*MUSTER, "status", "--json", folder], stdout=subprocess.PIPE, check=True)
    ended = json.loads(said.stdout)
    assert (ended["state"], ended["round"]) == ("stopped", len(rounds))
    shown = subprocess.run([*MUSTER, "watch", folder], stdout=subprocess.PIPE, check=True)
    assert b"stopped: the operator asked for it" in shown.stdout
