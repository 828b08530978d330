"""A worst case that was found in virtual time, played over real processes to the same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.commands import main

EXAMPLE = Path(__file__).parents[2] / "examples/unavailable.toml"

pytestmark = pytest.mark.usefixtures("nothing_left")


def muster(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_anyone_can_run_the_worst_case(tmp_path: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    settings = "--set", "server.rounds=12", "--set", "server.evaluate_every=12"
    search = "--runs", "20", "--processes", "2", "--out", str(out), "--json", *settings
    found = json.loads(muster("worst", str(EXAMPLE), "--budget", "0.2", *search))
    assert found["struck"]
    run = json.loads(muster("run", str(out / "worst.toml"), "--out", str(again), "--json"))
    assert run["model_sha256"] == found["model_sha256"]
    undisturbed = json.loads((out / "undisturbed/summary.json").read_text())
    assert run["model_sha256"] != undisturbed["model_sha256"]
