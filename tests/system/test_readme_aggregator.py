"""The README's aggregator, in a run over real processes."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
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
        server={"rounds": 2, "aggregator": {"kind": "my_rules:SquareRoot"}},
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
    task = {"name": "linear", "dimension": 5, "examples_per_client": 49}
    plain = scenario(task=task, server={"rounds": 2, "aggregator": "fedavg"}, modules=None)
    text = plain.to_toml().replace('"fedavg"', '"rules_of_mine:SquareRoot"')
    (home / "scenario.toml").write_text(text)
    # Another module of this name is in the current directory, as when a page is followed twice.
    other = block[0].replace("math.sqrt(", "1.0 + math.sqrt(")
    (tmp_path / "rules_of_mine.py").write_text(other, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def muster(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = "from muster.cli.commands import main; main()"
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    begun = muster("run", "home/scenario.toml", "--out", "run", "--quiet")
    assert begun.returncode == 0, begun.stderr
    with closing(sqlite3.connect("run/ledger.sqlite")) as ledger:
        weights = {row[0] for row in ledger.execute("SELECT weight FROM contributions")}
        inputs = dict(ledger.execute("SELECT name, sha256 FROM inputs WHERE kind = 'module'"))
    assert weights == {7.0}  # √49: by the other one it would be 8
    assert inputs == {"rules_of_mine.py": hashlib.sha256(block[0].encode()).hexdigest()}
    assert f'modules = "{home}"' in Path("run/scenario.toml").read_text()
    for again in (("run", "--resume", "run", "--quiet"), ("audit", "run")):
        done = muster(*again)
        assert done.returncode == 0, done.stdout + done.stderr
    (home / "rules_of_mine.py").write_text(other, encoding="utf-8")
    refused, audited = muster("run", "--resume", "run"), muster("audit", "run")
    assert refused.returncode == 2
    assert "rules_of_mine.py, code of your own, has changed" in refused.stderr
    assert audited.returncode == 1
    assert "SHA-256 of rules_of_mine.py: expected" in audited.stdout
