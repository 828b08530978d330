"""Audits make the versions of masked updates again, and so do formulas that share no code with the
rules; models that are longer than two blocks of an exact sum too."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_masked_runs import BUFFERED, OPPORTUNISTIC, scenario
from tests.oracles.checks import models_by_formula, weights_by_formula

from muster.common.exact_sum import BLOCK
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

ROTATING = {"kind": "blocks", "schedule": "rotating"}
DRAWN = {"kind": "random", "schedule": "drawn"}
WIDTH = {"kind": "width", "schedule": "drawn"}
CODECS = ["none", "float16", {"kind": "top-k", "ratio": 0.3}]


def kept(mask: dict[str, Any], rule: Any, mode: Any = "synchronous", **more: Any) -> Scenario:
    """A run that keeps its updates, compressed in one of its groups and masked in two of three."""
    server = {"rounds": 8, "aggregator": rule, "mode": mode, "keep_updates": True}
    server |= {"deadline_s": 4.0} if mode is OPPORTUNISTIC else {}
    part = {"mask": mask, "device": {"capacity": 0.3, "examples_per_s": 20}}
    slow = {"mask": mask, "device": {"capacity": 0.5, "examples_per_s": 2.5}}
    groups = [
        {"name": "part", "count": 3, "link": {"compression": "int8"}, **part},
        {"name": "slow", "count": 3, **slow},
        {"name": "whole", "count": 1},
    ]
    return scenario(mask, server=server, groups=groups, **more)


def agrees(folder: Path, versions: int) -> None:
    result = audit(folder)
    assert result.agrees, result.first
    made = next(check for check in result.checks if "made again" in check.title)
    assert not made.skipped
    assert made.compared > versions
    independent = models_by_formula(folder)
    assert not independent.differences
    assert independent.compared > versions
    assert not weights_by_formula(folder).differences


@pytest.mark.parametrize(
    ("mask", "rule", "mode"),
    [
        (ROTATING, "fedplt", "synchronous"),
        (ROTATING, {"kind": "fedplt", "psi": False}, "synchronous"),
        (DRAWN, {"kind": "fedplt", "rate": 0.5}, OPPORTUNISTIC),
        (WIDTH, "fedavg", BUFFERED),
        ({"kind": "tensors"}, "fedbuff", BUFFERED),
        (ROTATING, "importance", "synchronous"),
    ],
    ids=str,
)
def test_versions_of_masked_updates_are_made_again_bit_for_bit(
    tmp_path: Path, mask: dict[str, Any], rule: Any, mode: Any
) -> None:
    assert simulate_run(kept(mask, rule, mode), tmp_path / "run") == "completed"
    agrees(tmp_path / "run", 6)


def changed(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger, ledger:
        assert ledger.execute(statement).rowcount == 1


def test_a_coverage_that_is_not_that_of_the_round_is_found(tmp_path: Path) -> None:
    simulate_run(kept(ROTATING, "fedplt"), tmp_path / "run")
    where = "WHERE name = 'coverage' AND round = 3"
    changed(
        tmp_path / "run",
        f"UPDATE estimates SET value = json_set(value, '$.largest_psi', 1.0) {where}",
    )
    found = audit(tmp_path / "run").first
    assert found is not None
    assert (found.what, found.round, found.device) == ("coverage", 3, "largest_psi")


@pytest.mark.parametrize("kind", ["random", "blocks"])
def test_an_update_that_is_entered_with_the_mask_of_another_round_is_found(
    tmp_path: Path, kind: str
) -> None:
    """Its body has as many values, or fewer or more than that mask."""
    simulate_run(kept({"kind": kind, "schedule": "rotating"}, "fedplt"), tmp_path / "run")
    changed(
        tmp_path / "run",
        "UPDATE contributions SET call_round = 20 WHERE round = 3 AND client = 'slow-0001'",
    )
    made = next(check for check in audit(tmp_path / "run").checks if "made again" in check.title)
    assert made.differences
    assert made.differences[0].round == 3


LONG: dict[str, tuple[Any, dict[str, Any]]] = {
    "fedplt": ("fedplt", {"mask": DRAWN}),
    "fedplt-without-psi": ({"kind": "fedplt", "psi": False}, {"mask": DRAWN}),
    "fedbuff": ("fedbuff", {"mask": DRAWN}),
    "fedavg": ("fedavg", {}),
    "agnostic": ("agnostic", {}),
    "fedadam": ("fedadam", {}),
    "scaffold": ("scaffold", {"link": {}}),
    "median": ("median", {}),
    "bulyan": ({"kind": "bulyan", "byzantine": 0}, {}),
    "multi-krum": ({"kind": "multi-krum", "byzantine": 0}, {}),
    "q-fedavg": ("q-fedavg", {}),
    "fedvarp": ("fedvarp", {}),
    "mifa": ({"kind": "mifa", "start": "zero"}, {}),
}
"""A rule of each way to change the model, with and without masks."""


@pytest.mark.parametrize("name", LONG)
def test_models_of_more_than_two_blocks_are_those_of_the_formula(tmp_path: Path, name: str) -> None:
    """What is computed block by block must be the same in every block."""
    rule, more = LONG[name]
    task = {"name": "linear", "dimension": 2 * BLOCK + 100, "examples_per_client": 2}
    group = {
        "name": "dev",
        "count": 4,
        "device": {"capacity": 0.5},
        "link": {"compression": "int8"},
    }
    read = scenario(
        DRAWN,
        task=task,
        training={"learning_rate": 1e-6, "local_steps": 1, "batch_size": 2},
        server={"rounds": 3, "aggregator": rule, "keep_updates": True, "evaluate_every": 3},
        groups=[{**group, **more}],
    )
    assert simulate_run(read, tmp_path / "run") == "completed"
    agrees(tmp_path / "run", 3)
