"""The README's aggregator, in a run over real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.emulator import run
from muster.server.aggregators import Contribution

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_aggregator_weighs_a_runs_updates(
    scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.S | re.M)
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "my_rules.py").write_text(block[0], encoding="utf-8")
    monkeypatch.syspath_prepend(modules)
    paths = filter(None, [str(modules), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    planned = scenario(
        task={"name": "linear", "dimension": 5, "examples_per_client": 49},
        server={"rounds": 2, "aggregator": {"kind": "my_rules:SquareRoot", "floor": 1.0}},
        groups=[{"name": "dev", "count": 2}],
    )
    done = run(planned, out=tmp_path / "run")
    contributions = done.ledger.contributions
    assert list(contributions["outcome"]) == ["folded"] * 4
    rule = planned.server.aggregator
    row: Any
    for row in contributions.itertuples():
        known = Contribution(row.client, "dev", row.examples, row.staleness)
        assert row.weight == rule.weight(known, {})
    # √49 for each: the weight of FedAvg would be 49.
    assert set(contributions["weight"]) == {7.0}
    assert set(done.ledger.rounds["normaliser"]) == {14.0}


def test_an_aggregator_beside_the_scenario_is_found_from_anywhere_and_by_a_resumed_run(
    scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.S | re.M)
    home = tmp_path / "home"
    home.mkdir()
    (home / "rules_of_mine.py").write_text(block[0], encoding="utf-8")
    plain = scenario(server={"rounds": 2, "aggregator": "fedavg"}, modules=None)
    text = plain.to_toml().replace('"fedavg"', '"rules_of_mine:SquareRoot"')
    (home / "scenario.toml").write_text(text)
    # As in a new process, and nothing of it stays in this one.
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", "from muster.emulator.cli.commands import main; main()"]
    first = [*command, "run", "home/scenario.toml", "--out", "run", "--quiet"]
    again = [*command, "run", "--resume", "run", "--quiet"]
    for arguments in (first, again):
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert f'modules = "{home}"' in (tmp_path / "run/scenario.toml").read_text()
