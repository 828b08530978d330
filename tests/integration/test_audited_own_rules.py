"""Audits repeat a rule of the user's own, and every built-in rule has an independent formula."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_audited_weights import scenario
from tests.oracles.formulas import FORMULAS
from tests.oracles.next_model import RECALLING
from tests.oracles.propensities import LEARNING
from tests.oracles.vector_formulas import VECTOR_FORMULAS

from muster.common.own_code import use
from muster.emulator.run_audit import audit
from muster.emulator.run_audit.result import Difference
from muster.server.aggregators import BUILT_IN
from muster.simulation.whole_run import simulate_run

OWN = """
import numpy as np

from muster.server.aggregators import Aggregator, Combining, Stepping, Weighing


class Patient(Aggregator):
    \"\"\"Weighs by examples, and less in every round. It counts its rounds in its state.\"\"\"

    weights = "at-close"

    def weigh(self, cohort, state):
        rounds = int(state["rounds"]) + 1
        weights = [c.examples / rounds for c in cohort.contributions]
        estimates = {"rounds": rounds}
        return Weighing(weights, sum(weights) * 2, {"rounds": np.array(rounds)}, estimates)

    def initial_state(self, model):
        return {"rounds": np.array(0)}


class Watching(Patient):
    \"\"\"As before, with a state that follows from the model.\"\"\"

    def weigh(self, cohort, state):
        size = 1 + float(np.abs(state["model"]).sum())
        return Weighing([size] * len(cohort.contributions), size * len(cohort.contributions), state)

    def initial_state(self, model):
        return {"model": np.array(model)}

    def next_state(self, state, model):
        return {"model": np.array(model)}

    def result(self, state, model):
        return np.asarray(state["model"] * 0.5, dtype=np.float32)


class Largest(Combining):
    def weight(self, contribution, state):
        return 1.0

    def combine(self, updates, counted):
        return updates.max(axis=0).astype(np.float64)


class Half(Stepping):
    def weight(self, contribution, state):
        return float(contribution.examples)

    def step(self, mean, state):
        total = mean + state.get("total", 0.0)
        return total / 2, {"total": total}
"""


def played(folder: Path, name: str, keep: bool = True, **server: Any) -> Path:
    (folder / "own_rules.py").write_text(OWN)
    rule = f"own_rules:{name}"
    use(str(folder))
    found = scenario(rule, modules=str(folder), server={"keep_updates": keep, **server})
    assert simulate_run(found, folder / "run") == "completed"
    return folder / "run"


def change(run: Path, statement: str) -> Difference | None:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger, ledger:
        ledger.execute(statement)
    return audit(run).first


@pytest.mark.parametrize("name", ["Patient", "Watching", "Largest", "Half"])
def test_versions_of_an_own_rule_are_made_again(tmp_path: Path, name: str) -> None:
    run = played(tmp_path, name)
    result = audit(run)
    assert result.agrees, result.first
    made = next(check for check in result.checks if "made again" in check.title)
    assert made.compared > 20
    assert not made.skipped
    found = change(run, "UPDATE versions SET sha256 = 'x' WHERE version = 4")
    assert found is not None
    assert "made again" in found.what


@pytest.mark.parametrize("name", ["Patient", "Largest", "Half"])
def test_weights_of_an_own_rule_are_repeated_without_updates(tmp_path: Path, name: str) -> None:
    run = played(tmp_path, name, keep=False)
    result = audit(run)
    assert result.agrees, result.first
    weighed = next(check for check in result.checks if "by the rule" in check.title)
    assert weighed.compared > 20
    assert not weighed.skipped
    found = change(run, "UPDATE rounds SET normaliser = normaliser * 1.001 WHERE round = 5")
    assert found is not None
    assert (found.what, found.round) == ("normaliser", 5)


def test_a_changed_estimate_of_an_own_rule_is_found(tmp_path: Path) -> None:
    run = played(tmp_path, "Patient", keep=False)
    found = change(run, "UPDATE estimates SET value = '9' WHERE name = 'rounds' AND round = 3")
    assert str(found) == "round 3: rounds: expected 3, found 9"


def test_weights_that_follow_from_models_are_not_checked_without_updates(tmp_path: Path) -> None:
    result = audit(played(tmp_path, "Watching", keep=False))
    assert result.agrees, result.first
    skipped = [why for check in result.checks for why in check.skipped]
    expected = "models, which are made again only with server.keep_updates"
    assert sum(why.endswith(expected) for why in skipped) == 2, "the weights and the offered model"


def test_a_rule_whose_code_fails_is_a_difference(tmp_path: Path) -> None:
    run = played(tmp_path, "Patient", keep=False)
    (tmp_path / "own_rules.py").write_text(OWN.replace("/ rounds", "/ 0"))
    found = [str(d) for check in audit(run).checks for d in check.differences]
    assert any("found ZeroDivisionError: division by zero" in text for text in found)


def test_every_built_in_rule_has_an_independent_formula_or_arithmetic() -> None:
    known = {*FORMULAS, *VECTOR_FORMULAS, *LEARNING, *RECALLING}
    units = [path.read_text() for path in (Path(__file__).parents[1] / "unit").glob("test_*.py")]
    for kind in set(BUILT_IN) - known:
        names = f'"{kind}"', BUILT_IN[kind].__name__
        assert any(name in text for name in names for text in units), kind
