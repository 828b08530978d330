"""What `make chaos` requires of a run that has come to its end."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.chaos.playing import ChaosOutcome, judge
from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run


def scenario(**sections: Any) -> Scenario:
    values = {
        "name": "test",
        "seed": 3,
        "task": {"name": "linear", "dimension": 3, "heterogeneity": 1.0},
        "server": {"rounds": 4},
        "groups": [{"name": "dev", "count": 2}],
        "faults": [{"do": "sign-flip", "target": {"count": 1}, "when": {"round": 2},
                    "for_rounds": 1}],
    }  # fmt: skip
    return validate(Scenario, {**values, **sections}, "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    simulate_run(scenario(), tmp_path / "run")
    return tmp_path


def test_a_run_with_the_right_model_passes(folder: Path) -> None:
    outcome = ChaosOutcome()
    # The killed programs of the real run are no part of the undisturbed one.
    crash = {"do": "crash", "target": {"count": 1}, "when": {"round": 1}, "for_s": 1.0}
    faults = [*scenario().model_dump()["faults"], crash]
    assert list(judge(scenario(faults=faults), folder, outcome)) == []
    assert outcome.same
    assert outcome.states == {"applied": 1, "observed": 1, "healed": 1, "verified": 1}


def test_another_model_is_found(folder: Path) -> None:
    outcome = ChaosOutcome()
    found = list(judge(scenario(seed=4), folder, outcome))
    assert len(found) == 1
    assert found[0].startswith("model_sha256 is ")
    assert not outcome.same


def test_a_run_that_its_audit_refutes_is_found(folder: Path) -> None:
    summary = json.loads((folder / "run/summary.json").read_text())
    summary["updates_folded"] += 1
    (folder / "run/summary.json").write_text(json.dumps(summary))
    [found] = judge(scenario(), folder, ChaosOutcome())
    assert found.startswith("the audit found a difference: updates_folded in summary.json")


def test_a_fault_that_was_not_healed_is_found(folder: Path) -> None:
    journal = folder / "run/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"fault_healed"' not in line))
    found = list(judge(scenario(), folder, ChaosOutcome()))
    assert found[0] == "occurrence 1 of sign-flip-1 was applied and never healed"
