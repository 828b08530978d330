"""A server that was killed and started again knows what it knew: its ledger is that of a run in
which nothing happened, whatever a rule or a mode has to remember."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_audited_weights import LINEAR, TRAINING, rational, selected, unequal

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.invariants import model_hash
from muster.simulation.whole_run import simulate_run

KILLS = KillAt("server", "round_committed", 3), KillAt("server", "received", 5)
"""After a round that is due for evaluation was committed, and while a later one collects."""

EVALUATED_EVERY = 3

OPPORTUNISTIC = {"kind": "opportunistic", "max_staleness": 3}
BUFFERED = {"kind": "buffered", "k": 3, "concurrency": 5, "max_staleness": 2}
HASTY = {"kind": "buffered", "k": 2, "concurrency": 6, "max_staleness": 0}
AWAY: dict[str, Any] = {
    "clock": {"round_s": 1.0},
    "groups": [
        {
            "name": "dev",
            "count": 8,
            "device": {"examples_per_s": {"kind": "uniform", "low": 10, "high": 40}},
            "availability": {"kind": "markov", "mean_up_s": 4, "mean_down_s": 6},
        }
    ],
}
POPULATION: dict[str, Any] = {"server": {"information": "full"}, "groups": selected()}
HALF = unequal(availability={"kind": "bernoulli", "probability": 0.6})
MASKED = unequal(mask={"kind": "random", "schedule": "rotating"})
FEW = {"server": {"selection": {"kind": "uniform", "k": 3}}}

REMEMBERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "participation": ("participation-ipw", POPULATION),
    "participation and enrollment": ("fedipw", POPULATION),
    "calibrated weights": ("calibrated", POPULATION),
    "shares": ("importance", {}),
    "momentum": ("fedavgm", {}),
    "moments": ("fedadam", {}),
    "iterates": ("agnostic", {"server": {"evaluate_every": 1}}),
    "control variates": ("scaffold", FEW),
    "updates of all": ("fedvarp", FEW),
    "who has sent": ({"kind": "mifa", "start": "wait"}, FEW),
    "open assignments": ("fedavg", {"server": {"mode": OPPORTUNISTIC}}),
    "versions": ("fedasync", {"server": {"mode": BUFFERED}}),
    "working devices": ("fedbuff", {"server": {"mode": {**BUFFERED, "calls_at": "finish"}}}),
    "busy devices": ("fedavg", {"server": {"mode": HASTY}}),
    "absent devices": ("fedavg", {"server": {"mode": OPPORTUNISTIC}, **AWAY}),
    "scenario time": ("fedavg", {"clock": {"kind": "modelled", "round_s": 4.0}}),
    "empty rounds": ("fedavg", {"server": {"minimum": 5}, "groups": HALF}),
    "masks": ("fedplt", {"groups": MASKED}),
    "spent privacy": ("fedavg", {"server": {"privacy": {"clip": 0.5, "noise": 1.0}}}),
}
"""A rule or a mode for each thing that a server has to remember, and sections of its scenario."""


def scenario(rule: Any, **sections: Any) -> Scenario:
    server = {"rounds": 8, "aggregator": rule, "evaluate_every": EVALUATED_EVERY, "deadline_s": 3.0}
    values = {
        "name": "restarted",
        "seed": 4,
        "clock": {"round_s": 4.0},
        "task": LINEAR,
        "training": TRAINING,
        "groups": unequal(),
        **sections,
        "server": {**server, **sections.get("server", {})},
    }
    return validate(Scenario, values, "test")


TABLES = {
    "rounds": "round, version, base_version, outcome, folded, accepted, normaliser, scenario_s, "
    "next_s, epsilon",
    "contributions": "round, call_round, client, outcome, staleness, weight",
    "answers": "round, client, decision, reason, modelled_s, x",
    "estimates": "round, name, value",
    "evaluations": "version, round, loss, accuracy",
}
"""What a restart must not change; the rest of the ledger is measured, as bytes and seconds are."""


def account(folder: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return {
            table: ledger.execute(f"SELECT {names} FROM {table} ORDER BY {names}").fetchall()
            for table, names in TABLES.items()
        }


def check_restarts(read: Scenario, folder: Path) -> dict[str, list[Any]]:
    for name, kills in (("whole", ()), ("killed", KILLS)):
        assert simulate_run(read, folder / name, kills) == "completed"
    whole, killed = account(folder / "whole"), account(folder / "killed")
    for table, rows in whole.items():
        assert killed[table] == rows, table
    assert model_hash(folder / "killed") == model_hash(folder / "whole")
    return killed


@pytest.mark.parametrize("what", REMEMBERS)
def test_a_restarted_server_knows_what_it_knew(tmp_path: Path, what: str) -> None:
    rule, sections = REMEMBERS[what]
    check_restarts(scenario(rule, **sections), tmp_path)


@pytest.mark.parametrize("kind", ["feduca", "aaggff-s", "incfl"])
def test_a_restarted_server_knows_the_weights_of_rational_devices(
    tmp_path: Path, kind: str
) -> None:
    check_restarts(rational({"kind": kind}), tmp_path)


def test_every_version_that_is_due_is_evaluated_although_the_server_was_killed(
    tmp_path: Path,
) -> None:
    """The server is killed before it has submitted version 3."""
    evaluations = check_restarts(scenario("fedavg"), tmp_path)["evaluations"]
    assert [row[0] for row in evaluations] == [0, 3, 6, 8]
