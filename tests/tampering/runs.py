"""Small finished runs of many kinds, made in virtual time, with the files of `muster run`."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from muster.common.config import validate
from muster.emulator.fleet.lives import life_of
from muster.emulator.fleet.scenario_faults import ScenarioFaults, write_timeline
from muster.emulator.planning.plan import plan
from muster.emulator.planning.result import write_plan
from muster.emulator.records.inputs import inputs_of
from muster.emulator.scenario.population import population, write_population
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.run_rows import INPUTS
from muster.simulation.whole_run import simulate_run

_PAIR = [
    {"name": "quick", "count": 4, "device": {"examples_per_s": 20}},
    {
        "name": "slow",
        "count": 3,
        "device": {"examples_per_s": {"kind": "uniform", "low": 2, "high": 8}},
        "availability": {"kind": "bernoulli", "probability": 0.8},
        "link": {"compression": "float16"},
    },
]
"""Quick devices, and slow ones that are not always there."""

_BUFFERED = {"kind": "buffered", "k": 3, "concurrency": 5}
_OPPORTUNISTIC = {"kind": "opportunistic", "max_staleness": 3}

_CHOSEN = [
    {
        "name": "dev",
        "count": 10,
        "availability": {"kind": "logistic", "intercept": 0.5, "z": {"age": 0.7}},
        "covariates": {"z": {"age": {"kind": "normal"}}, "x": {"load": {"kind": "normal"}}},
        "participation": {"drop_out": 0.2},
        "enrollment": {"kind": "logistic", "intercept": 0.5, "z": {"age": 1.0}},
    },
    {"name": "plain", "count": 3, "availability": {"kind": "bernoulli", "probability": 0.7}},
]
"""Devices whose enrollment and participation depend on their covariates."""

_MASK = {"kind": "blocks", "schedule": "rotating"}
_MASKED = [
    {
        "name": "part",
        "count": 3,
        "link": {"compression": "int8"},
        "mask": _MASK,
        "device": {"capacity": 0.3, "examples_per_s": 20},
    },
    {"name": "half", "count": 3, "mask": _MASK, "device": {"capacity": 0.5, "examples_per_s": 5}},
    {"name": "whole", "count": 1},
]
_HOLDING = {"count": 3, "devices_per_process": 3, "partial_sums": True}

_AWAY = {
    "do": "offline",
    "name": "away",
    "target": {"names": ["quick-0001"]},
    "when": {"round": 3},
    "for_rounds": 2,
}
_NEVER = {
    "do": {"kind": "slow", "factor": 2},
    "name": "never",
    "target": {"names": ["slow-0002"]},
    "when": {"round": 6},
    "for_rounds": 1,
}
_TWICE = {**_AWAY, "do": "duplicate", "name": "twice", "when": {"round": 2}, "for_rounds": 1}
_WRONG = {**_AWAY, "do": "nan", "name": "wrong", "when": {"round": 6}, "for_rounds": 1}
_EXPECT = [
    {"that": "folded >= 1", "always": True},
    {"that": "folded >= 2", "after": "away"},
    {"that": "loss < 1e-9", "always": True},
]
_SILOS = [{"name": "silo", "count": 5, "participation": {"kind": "rational"}}]


KINDS: Mapping[str, Mapping[str, Any]] = {
    "synchronous": {"server": {"keep_updates": True, "deadline_s": 6.0, "evaluate_every": 2}},
    "modelled": {
        "clock": {"kind": "modelled", "round_s": 4.0},
        "server": {
            "selection": {"kind": "uniform", "k": 3, "over_selection": 1.5},
            "deadline_s": 6.0,
            "evaluate_groups": True,
            "evaluate_devices": True,
        },
    },
    "opportunistic": {"server": {"mode": _OPPORTUNISTIC, "deadline_s": 4.0}},
    "buffered": {"server": {"mode": _BUFFERED, "aggregator": "fedadam", "keep_updates": True}},
    "estimated": {"server": {"aggregator": "calibrated", "information": "full"}, "groups": _CHOSEN},
    "masks": {
        "task": {"name": "linear", "dimension": 3, "model": "mlp", "hidden": [6]},
        "server": {"aggregator": "fedplt", "keep_updates": True},
        "groups": _MASKED,
    },
    "memory": {"server": {"aggregator": "fedvarp", "mode": _OPPORTUNISTIC, "deadline_s": 4.0}},
    "sums": {
        "server": {"aggregator": "fednova"},
        "groups": [{"name": "held", **_HOLDING}, {"name": "alone", "count": 2}],
    },
    "secure": {
        "server": {"minimum": 3, "secure": {"keep_sums": True}},
        "groups": [{"name": "dev", "count": 4}],
    },
    "secure-grid": {
        "server": {"minimum": 3, "secure": {"keep_sums": True, "range": 0.5, "bits": 20}},
        "groups": [{"name": "dev", "count": 5, "devices_per_process": 2}],
    },
    "faults": {
        "server": {"deadline_s": 6.0, "evaluate_groups": True},
        "faults": [_AWAY, _NEVER, _TWICE, _WRONG],
        "expect": _EXPECT,
    },
    "privacy": {"server": {"privacy": {"clip": 0.2, "noise": 0.7}}, "groups": _PAIR[:1]},
    "rational": {
        "task": {"name": "digits", "validation_ratio": 0.3},
        "server": {"aggregator": "feduca", "rounds": 4},
        "groups": _SILOS,
    },
    "chunks": {
        "task": {"name": "linear", "dimension": 17_000, "examples_per_client": 4},
        "training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4},
        "server": {"rounds": 3, "transfers": 1},
        "groups": [
            {"name": "dev", "count": 2},
            {"name": "pack", "count": 2, "devices_per_process": 2},
        ],
    },
}  # fmt: skip
"""What the scenarios of the kinds have in common, is in `scenario`; these are their differences."""


def scenario(**sections: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "tampered",
        "seed": 4,
        "clock": {"round_s": 4.0},
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8},
        "groups": _PAIR,
        **sections,
    }
    values["server"] = {"rounds": 7, **sections.get("server", {})}
    return validate(Scenario, values, "test")


def make(kind: str, folder: Path) -> Path:
    """Run the scenario of a kind, and leave in its folder what `muster run` would leave."""
    return run(scenario(**KINDS[kind]), folder)


def run(made: Scenario, folder: Path) -> Path:
    """Run a scenario, and leave in its folder what `muster run` would leave."""
    simulate_run(made, folder)
    write_inputs(made, folder)
    (folder / "manifest.json").unlink()  # who tampers can write it again
    return folder


def write_inputs(made: Scenario, folder: Path) -> None:
    """Write the files that a run in virtual time leaves out, and enter the inputs."""
    residents = population(made)
    write_timeline(folder, ScenarioFaults.of(made, residents).timeline)
    write_population(folder / "population.csv", residents, None)
    if any(life_of(made, group).eventful for group in made.groups):
        write_plan(folder, plan(made))
    rows = inputs_of(folder)
    config = json.loads((folder / "setup/server.json").read_text())
    recorded = {(row["kind"], row["name"]): row for row in config["inputs"]}
    recorded |= {(row.kind, row.name): row._asdict() for row in rows}
    config["inputs"] = list(recorded.values())
    (folder / "setup/server.json").write_text(json.dumps(config))
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger, ledger:
        for row in rows:
            ledger.executemany(*INPUTS.insert([row], "INSERT OR REPLACE"))
