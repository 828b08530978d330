"""A run on the wall clock, played again from its life record, virtually and over processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import tomli_w
from click.testing import CliRunner

from muster.cli.commands import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")


def muster(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_run_on_the_wall_clock_is_repeated_to_the_bit(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    made = scenario(
        clock={"kind": "wall", "round_s": 1.0},
        server={
            "rounds": 8,
            "deadline_s": 5.0,
            "mode": {"kind": "buffered", "k": 2, "concurrency": 4},
        },
        groups=[
            {"name": "quick", "count": 3, "device": {"examples_per_s": 2000}},
            {"name": "slow", "count": 3, "device": {"examples_per_s": 200}},
        ],
    )
    (tmp_path / "recorded.toml").write_text(made.to_toml())
    run, record = tmp_path / "run", tmp_path / "life.csv.gz"
    muster("run", str(tmp_path / "recorded.toml"), "--out", str(run), "--quiet")

    played = muster("what-if", str(run), "--out", str(tmp_path / "what-if"), "--json")
    found = json.loads(played)
    assert found["same_model"]
    assert found["uncertain_calls"] == 0
    models = {each["model_sha256"] for each in found["runs"]}
    assert len(models) == 1

    # With recorded answers and durations, the server may work in another mode.
    other = "--grade", "life", "--set", "server.mode=synchronous", "--set", "server.deadline_s=30"
    found = json.loads(
        muster("what-if", str(run), "--out", str(tmp_path / "mode"), *other, "--json")
    )
    assert found["grade"] == "life"
    assert [each["status"] for each in found["runs"]] == ["completed", "completed"]

    # Anyone can play the record over real processes, too.
    assert "devices in 8 rounds" in muster("life", "export", str(run), str(record))
    values = made.model_dump(exclude_none=True)
    values |= {"clock": {"kind": "rounds"}, "life": {"record": "life.csv.gz"}}
    (tmp_path / "again.toml").write_text(tomli_w.dumps(values))
    again = tmp_path / "again"
    printed = muster("run", str(tmp_path / "again.toml"), "--out", str(again), "--json")
    assert json.loads(printed)["model_sha256"] in models
    assert json.loads(muster("audit", str(again), "--json"))["agrees"]
