"""A league in worker processes: a rule of a person's own, a refused one, and a resumption."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main

pytestmark = pytest.mark.usefixtures("nothing_left")

RULE = Path(__file__).parents[2] / "examples/resilience/my_rules.py"

SCENARIO = """# Stale updates.
name = "stale"
[task]
name = "digits"
model = "softmax"
[training]
learning_rate = 0.1
[server]
rounds = 4
evaluate_groups = true
mode = { kind = "buffered", k = 2, concurrency = 3, staleness_weight = "constant" }
[[groups]]
name = "dev"
count = 4
devices_per_process = 4
device = { examples_per_s = 10 }
"""


def muster(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_a_league_has_a_row_for_an_own_rule_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "stale.toml").write_text(SCENARIO)
    out = tmp_path / "league"
    asked = ["--rules", f"scaffold,{RULE}:PlainMean", "--scenarios", str(tmp_path / "stale.toml")]
    first = muster("league", *asked, "--seeds", "2", "--target", "0.1", "--out", str(out), "--json")
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    by_rule = {standing["rule"]: standing for standing in found["standings"]}
    assert list(by_rule) == ["fedavg", "scaffold", "my_rules:PlainMean"]
    assert by_rule["my_rules:PlainMean"]["accuracy"][2] == 2
    assert by_rule["my_rules:PlainMean"]["rounds"][2] == 2
    assert "control variate" in by_rule["scaffold"]["why"]
    for file in ("league.html", "league.md", "league.csv", "stale/comparison.md"):
        assert (out / file).exists()

    # A run that did not end is played again, to the same model; the others are kept.
    shutil.rmtree(out / "stale/fedavg-seed201")
    kept = (out / "stale/fedavg-seed202/summary.json").stat().st_mtime_ns
    again = muster("league", "--resume", str(out), "--jobs", "1", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["cells"] == found["cells"]
    assert (out / "stale/fedavg-seed202/summary.json").stat().st_mtime_ns == kept

    refused = muster("league", "--resume", str(out), "--seeds", "2")
    assert refused.exit_code == 2
    assert "--resume continues the league as it began" in refused.stderr
