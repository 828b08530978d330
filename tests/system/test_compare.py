"""A comparison over real processes, through the command line."""

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from muster.cli.commands import main

DIGITS = Path(__file__).parents[2] / "examples/digits.toml"

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_two_variants_and_two_seeds_are_compared_in_pairs(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    small = ("--set", "server.rounds=2", "--set", "groups[0].count=3")
    asked = ("--vary", "training.local_epochs=1,4", "--seeds", "2", "--out", str(folder))
    result = CliRunner().invoke(main, ["compare", str(DIGITS), *asked, *small])
    assert result.exit_code == 0, result.output
    assert "Difference to local_epochs=1, between runs of the same seed" in result.stdout
    assert "[4/4] local_epochs=4 seed=2: completed: 2 rounds" in result.stderr
    runs = pd.read_csv(folder / "comparison.csv")
    assert runs["status"].tolist() == ["completed"] * 4
    assert runs["model_sha256"].nunique() == 4
    for row in runs.to_dict("records"):
        run = folder / row["folder"]
        assert (run / "report.html").exists()
        assert json.loads((run / "summary.json").read_text())["final"]["loss"] == row["loss"]
    # More work on the same data, from the same start, is better after two rounds.
    differences = pd.DataFrame(json.loads((folder / "comparison.json").read_text())["differences"])
    (loss,) = differences.query("measure == 'loss'").to_dict("records")
    assert loss["n"] == 2
    assert loss["mean"] < 0
    assert (folder / "comparison.png").exists()
    # Nothing is run again.
    again = CliRunner().invoke(main, ["compare", "--resume", str(folder), "--json"])
    assert again.exit_code == 0, again.output
    numbers = json.loads((folder / "comparison.json").read_text())
    assert json.loads(again.stdout) == {"folder": str(folder), **numbers}


@pytest.mark.soak
def test_the_first_variant_is_the_run_that_muster_run_makes(tmp_path: Path) -> None:
    small = ("--set", "server.rounds=1", "--set", "groups[0].count=2", "--quiet")
    runner = CliRunner()
    alone = runner.invoke(main, ["run", str(DIGITS), *small, "--out", str(tmp_path / "alone")])
    assert alone.exit_code == 0, alone.output
    asked = ("--vary", "training.local_epochs=5", "--out", str(tmp_path / "there"))
    result = runner.invoke(main, ["compare", str(DIGITS), *small, *asked])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    runs = pd.read_csv(tmp_path / "there/comparison.csv")
    summary = json.loads((tmp_path / "alone/summary.json").read_text())
    assert runs["model_sha256"].tolist() == [summary["model_sha256"]]
