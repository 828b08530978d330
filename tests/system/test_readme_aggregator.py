"""The README's aggregator, in a run over real processes."""

import os
import re
import sys
from pathlib import Path

import pytest

from muster.emulator import run
from muster.server.aggregators import Contribution

pytestmark = pytest.mark.usefixtures("nothing_left")

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_aggregator_weighs_a_runs_updates(
    scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.delitem(sys.modules, "my_rules")
    done = run(planned, out=tmp_path / "run")
    contributions = done.ledger.contributions
    assert list(contributions["outcome"]) == ["folded"] * 4
    rule = planned.server.aggregator
    for row in contributions.itertuples():
        known = Contribution(row.client, "dev", row.examples, row.staleness)
        assert row.weight == rule.weight(known, {})
    # √49 for each: the weight of FedAvg would be 49.
    assert set(contributions["weight"]) == {7.0}
    assert set(done.ledger.rounds["normaliser"]) == {14.0}
