"""Rules weigh real cohorts as independent formulas do; audits repeat the rules and find changes."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.checks import models_by_formula, weights_by_formula

from muster.common.config import validate
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

LINEAR = {"name": "linear", "dimension": 5, "heterogeneity": 1.0}
TRAINING = {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8}
OPPORTUNISTIC = {
    "kind": "opportunistic",
    "staleness_weight": {"kind": "polynomial", "exponent": 0.5},
}
BERNOULLI = {"kind": "bernoulli", "probability": 0.7}
EIGHT = [0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]


def unequal(**more: Any) -> list[dict[str, Any]]:
    """Devices that take different numbers of local steps, some of them too late."""
    return [
        {"name": "quick", "count": 5, "device": {"examples_per_s": 20}, **more},
        {
            "name": "slow",
            "count": 3,
            "device": {"examples_per_s": {"kind": "uniform", "low": 2, "high": 6}},
            "training": {"local_steps": 5},
            **more,
        },
    ]


def selected() -> list[dict[str, Any]]:
    """Devices whose enrollment and participation depend on their covariates."""
    return [
        {
            "name": "dev",
            "count": 24,
            "availability": {"kind": "logistic", "intercept": 0.5, "z": {"age": 0.7}},
            "covariates": {"z": {"age": {"kind": "normal"}}, "x": {"load": {"kind": "normal"}}},
            "participation": {"drop_out": 0.2},
            "enrollment": {"kind": "logistic", "intercept": 0.5, "z": {"age": 1.0}},
        },
        {"name": "plain", "count": 8, "availability": BERNOULLI},
    ]


def scenario(rule: Any, **sections: Any) -> Scenario:
    server = {
        "rounds": 10,
        "aggregator": rule,
        "deadline_s": 6.0,
        "keep_updates": True,
        **sections.pop("server", {}),
    }
    values: dict[str, Any] = {
        "name": "audited",
        "seed": 4,
        "clock": {"round_s": 4.0},
        "task": LINEAR,
        "training": TRAINING,
        "server": server,
        "groups": unequal(),
    }
    return validate(Scenario, {**values, **sections}, "test")


FULL = {"server": {"information": "full"}, "groups": selected()}
CLOSED: dict[str, Any] = {
    "server": {"deadline_s": None},
    "groups": [
        {"name": "often", "count": 4, "availability": {**BERNOULLI, "probability": 0.9}},
        {"name": "rarely", "count": 3, "availability": {**BERNOULLI, "probability": 0.3}},
    ],
}
"""Devices whose shares of participation are known exactly."""

RULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "krum": ({"kind": "krum", "byzantine": 1}, {}),
    "multi-krum": ({"kind": "multi-krum", "byzantine": 1}, {"server": {"mode": OPPORTUNISTIC}}),
    "multi-krum-m": ({"kind": "multi-krum", "byzantine": 1, "m": 2}, {}),
    "bulyan": ({"kind": "bulyan", "byzantine": 1}, {"server": {"deadline_s": None}}),
    "q-fedavg": ({"kind": "q-fedavg", "q": 0.7}, {"server": {"mode": OPPORTUNISTIC}}),
    "q-fedavg-smooth": ({"kind": "q-fedavg", "smoothness": 3.0}, {}),
    "fednova": ("fednova", {"server": {"mode": OPPORTUNISTIC}}),
    "fedplt": ("fedplt", {}),
    "fednova-momentum": (
        {"kind": "fednova", "effective_steps": 2.0},
        {"training": {**TRAINING, "optimizer": {"kind": "sgd", "momentum": 0.5}}},
    ),
    "fednova-proximal": ("fednova", {"training": {**TRAINING, "proximal_mu": 0.3}}),
    "weighted": (
        {"kind": "weighted", "p": EIGHT},
        {"training": {**TRAINING, "projection_radius": 9.0}},
    ),
    "weighted-normalised": ({"kind": "weighted-normalised", "p": EIGHT}, {}),
    "weighted-exact": ("weighted-normalised", CLOSED),
    "importance-exact": (
        {"kind": "importance", "shares": "exact"},
        CLOSED,
    ),
    "oracle-ipw": ("oracle-ipw", FULL),
    "oracle-ipw-horvitz-thompson": (
        {"kind": "oracle-ipw", "normalise": "horvitz-thompson"},
        FULL,
    ),
    "participation-ipw": ("participation-ipw", FULL),
    "fedipw": ("fedipw", FULL),
    "fedipw-one-column": (
        {"kind": "fedipw", "participation": {"x": []}, "normalise": "horvitz-thompson"},
        FULL,
    ),
}
"""Rules, and the sections of the scenario in which they run."""


@pytest.mark.parametrize("name", RULES)
def test_weights_are_derived_again_and_a_wrong_one_is_found(tmp_path: Path, name: str) -> None:
    rule, sections = RULES[name]
    assert simulate_run(scenario(rule, **sections), tmp_path / "run") == "completed"
    result = audit(tmp_path / "run")
    assert result.agrees, result.first
    weights = weights_by_formula(tmp_path / "run")
    models = models_by_formula(tmp_path / "run") if weights.compared == 0 else weights
    assert not weights.differences
    assert not models.differences
    assert models.compared > 10
    with closing(sqlite3.connect(tmp_path / "run/ledger.sqlite")) as ledger, ledger:
        query = "SELECT max(round) FROM contributions WHERE outcome = 'folded'"
        [(round,)] = ledger.execute(query).fetchall()
        change = "UPDATE rounds SET normaliser = normaliser * 1.001 WHERE round = ?"
        ledger.execute(change, (round,))
    found = audit(tmp_path / "run").first
    assert found is not None
    assert (found.what, found.round) == ("normaliser", round)


@pytest.mark.parametrize("name", ["krum", "bulyan", "fednova", "oracle-ipw", "fedipw"])
def test_the_weight_of_another_device_is_found(tmp_path: Path, name: str) -> None:
    rule, sections = RULES[name]
    simulate_run(scenario(rule, **sections), tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run/ledger.sqlite")) as ledger, ledger:
        rows = ledger.execute(
            "SELECT client, weight FROM contributions WHERE round = 2 AND outcome = 'folded' "
            "ORDER BY weight"
        ).fetchall()
        (low, least), (high, most) = rows[0], rows[-1]
        assert least < most
        # Exchanged, so that their sum and their largest value remain.
        change = "UPDATE contributions SET weight = ? WHERE round = 2 AND client = ?"
        ledger.executemany(change, [(most, low), (least, high)])
    found = [
        difference.device
        for check in audit(tmp_path / "run").checks
        for difference in check.differences
        if difference.what == "weight"
    ]
    assert sorted(map(str, found)) == sorted([low, high])


def rational(rule: dict[str, Any], available: float = 1.0, **utility: Any) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "audited",
            "seed": 6,
            "task": {
                "name": "digits",
                "validation_ratio": 0.3,
                "partition": {"kind": "dirichlet", "alpha": 0.3},
            },
            "server": {"rounds": 6, "aggregator": rule, "keep_updates": True},
            "groups": [
                {
                    "name": "silo",
                    "count": 5,
                    "availability": {"kind": "bernoulli", "probability": available},
                    "participation": {
                        "kind": "rational",
                        "utility": {"test": "fitted", "threshold": "weight", **utility},
                    },
                }
            ],
        },
        "test",
    )


RATIONAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "feduca": ({"kind": "feduca", "strategies": 3}, {}),
    "feduca-first": (
        {"kind": "feduca", "strategies": 3, "order": "solve-first", "retention": "model"},
        {"threshold": "global", "margin": 0.05},
    ),
    "feduca-unregularized": ({"kind": "feduca", "regularization": 0.0}, {}),
    "feduca-one": ({"kind": "feduca", "strategies": 1, "slack": 0.01}, {}),
    "feduca-nobody": (
        {"kind": "feduca", "order": "solve-first"},
        {"threshold": "global", "margin": 1},
    ),
    "feduca-nobody-and-some-away": (
        {"kind": "feduca", "order": "solve-first"},
        {"threshold": "global", "margin": 1, "available": 0.7},
    ),
    "max-participation": ({"kind": "max-participation"}, {}),
    "max-participation-first": ({"kind": "max-participation", "order": "solve-first"}, {}),
    "rational-fedavg": ({"kind": "rational-fedavg", "retention": "model"}, {}),
    "incfl": ({"kind": "incfl"}, {}),
    "aaggff-s": ({"kind": "aaggff-s", "retention": "model"}, {}),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", RATIONAL)
def test_the_weights_of_rational_devices_are_derived_again(tmp_path: Path, name: str) -> None:
    rule, utility = RATIONAL[name]
    assert simulate_run(rational(rule, **utility), tmp_path / "run") == "completed"
    result = audit(tmp_path / "run")
    assert result.agrees, result.first
    checked = weights_by_formula(tmp_path / "run")
    assert checked.compared > 20
    assert not checked.differences
    again = models_by_formula(tmp_path / "run")
    assert again.compared > 5
    assert not again.differences
    if name.startswith("feduca-nobody"):
        with closing(sqlite3.connect(tmp_path / "run/ledger.sqlite")) as ledger:
            query = "SELECT count(*) FROM estimates WHERE name = 'fallback'"
            assert ledger.execute(query).fetchone()[0] > 0


def changed(folder: Path, name: str, entry: str, add: float) -> None:
    """Add to an entry of a table of estimates in round 3."""
    where = "WHERE round = 3 AND name = ?"
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger, ledger:
        [(before,)] = ledger.execute(
            f"SELECT json_extract(value, ?) FROM estimates {where}", (entry, name)
        )
        ledger.execute(
            f"UPDATE estimates SET value = json_set(value, ?, ?) {where}",
            (entry, before + add, name),
        )


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("rule", "name", "entry", "add", "what"),
    [
        ("feduca", "mixture", "$.0", 1e-3, "mixture"),
        ("feduca", "strategies", '$."1"."silo-0002"', 1e-3, "strategies"),
        ("feduca", "solved", '$."silo-0001"', 1e-6, "solved"),
        ("feduca", "attainable", "$", 1, "attainable"),
        ("feduca", "missing_utility", '$."silo-0001"', 1e-6, "missing_utility"),
        ("feduca", "discrepancy_bound", "$", 1e-6, "discrepancy_bound"),
        ("max-participation", "solved", '$."silo-0001"', 1e-6, "solved"),
        ("rational-fedavg", "alpha", '$."silo-0001"', 1e-6, "alpha"),
        ("incfl", "alpha", '$."silo-0001"', 1e-6, "alpha"),
        ("aaggff-s", "alpha", '$."silo-0001"', 1e-3, "alpha"),
    ],
)
def test_a_wrong_weight_of_a_rational_device_is_found(
    tmp_path: Path, rule: str, name: str, entry: str, add: float, what: str
) -> None:
    simulate_run(rational({"kind": rule}), tmp_path / "run")
    changed(tmp_path / "run", name, entry, add)
    found = [
        difference for check in audit(tmp_path / "run").checks for difference in check.differences
    ]
    assert (what, 3) in [(difference.what, difference.round) for difference in found]


def test_a_matrix_that_is_feasible_but_not_optimal_is_found(tmp_path: Path) -> None:
    simulate_run(rational({"kind": "feduca", "strategies": 2}), tmp_path / "run")
    for row, sign in (("0", 1), ("1", -1)):  # the sums of rows and columns stay
        changed(tmp_path / "run", "strategies", f'$."{row}"."silo-0001"', sign * 0.1)
        changed(tmp_path / "run", "strategies", f'$."{row}"."silo-0002"', -sign * 0.1)
    found = [d.what for check in audit(tmp_path / "run").checks for d in check.differences]
    assert "strategies" in found
    formulas = weights_by_formula(tmp_path / "run").differences
    assert "α, from the optimum of problem 7" in [difference.what for difference in formulas]
