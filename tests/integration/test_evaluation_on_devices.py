"""Devices evaluate the models that they receive: what the ledger has of it follows from the model
and the examples of each device, whatever dies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from muster.client.device.memory import Memory
from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.emulator.records.account import Account
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run
from muster.tasks.opening import opened
from muster.tasks.parts import load_local

TABLES = "evaluations", "group_evaluations", "device_evaluations"
OF_THE_CLOCK = ["at", "seconds"]


def scenario(**more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "evaluated",
        "seed": 4,
        "task": {
            "name": "logistic",
            "dimension": 3,
            "model": {"kind": "linear", "bias": True},
            "heterogeneity": 1.0,
        }
        | more.pop("task", {}),
        "training": {"learning_rate": 0.1, "local_steps": 2} | more.pop("training", {}),
        "server": {"rounds": 3, "evaluate_on": "devices", **more.pop("server", {})},
        "groups": [
            {"name": "near", "count": 2, **more.get("group", {})},
            {"name": "far", "count": 3, **more.pop("group", {})},
        ],
    }
    return validate(Scenario, {**values, **more}, "test")


def tables_of(folder: Path) -> list[list[dict[Any, Any]]]:
    """The rows of evaluations, without times."""
    with Account(folder) as account:
        found = [getattr(account, name) for name in TABLES]
        return [
            rows.drop(columns=OF_THE_CLOCK, errors="ignore")
            .replace({np.nan: None})
            .to_dict("records")
            for rows in found
        ]


@pytest.mark.parametrize("ratio", [pytest.param(0.0, marks=pytest.mark.soak), 0.25])
def test_a_version_is_measured_with_the_entries_and_the_examples_of_each_device(
    tmp_path: Path, ratio: float
) -> None:
    task = {"validation_ratio": ratio, "parts": {"local": ["*.bias"]}}
    for rounds in (1, 2):
        asked = scenario(task=task, server={"rounds": rounds})
        assert simulate_run(asked, tmp_path / str(rounds)) == "completed"
    model, own = load_file(tmp_path / "1/model.safetensors"), opened(asked.task, 5, asked.seed)
    module, found = own.module(), []
    state = {name: torch.from_numpy(value) for name, value in model.items()}
    module.load_state_dict(state, strict=False)
    for index, folder in enumerate(sorted((tmp_path / "1/devices").glob("near*"))):
        found.append((index, folder))
    for index, folder in enumerate(sorted((tmp_path / "1/devices").glob("far*")), start=2):
        found.append((index, folder))
    measured = {}
    for index, folder in found:
        memory = Memory(folder)
        load_local(module, memory.before(2).local)
        memory.close()
        some = own.validation(index) if ratio else own.client(index)
        measured[folder.name] = len(some), own.metrics_on(module, some)
    with Account(tmp_path / "2") as account:
        devices = account.device_evaluations
        groups = account.group_evaluations
        whole = account.evaluations
        assert account.rounds["loss"].iloc[0] == whole["loss"].iloc[1]
    assert whole["version"].tolist() == [0, 1]
    rows = devices[devices["version"] == 1].set_index("client")
    assert set(rows.index) == set(measured)
    for client, (count, metrics) in measured.items():
        assert rows.loc[client, "examples"] == count
        assert rows.loc[client, "loss"] == pytest.approx(metrics["loss"], rel=1e-6)
    for name in ("near", "far", ""):
        parts = [value for client, value in measured.items() if client.startswith(name)]
        sizes = [count for count, _ in parts]
        mean = np.average([metrics["loss"] for _, metrics in parts], weights=sizes)
        of_group = groups[(groups["version"] == 1) & (groups["group"] == name)]
        row = of_group.iloc[0] if name else whole.iloc[1]
        assert row["loss"] == pytest.approx(mean, rel=1e-6)
    result = audit(tmp_path / "2")
    assert result.agrees, result.first


SLOW = {"device": {"examples_per_s": {"kind": "uniform", "low": 10, "high": 60}}}
MODES: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "every second version": {"server": {"evaluate_every": 2, "rounds": 5}},
    "late updates": {"server": {"deadline_s": 2.0}, "group": SLOW},
    "opportunistic": {
        "server": {"mode": {"kind": "opportunistic", "max_staleness": 3}, "deadline_s": 2.0},
        "group": SLOW,
    },
    "buffered": {
        "server": {"mode": {"kind": "buffered", "k": 2, "concurrency": 4}, "rounds": 5},
        "group": SLOW,
    },
    "both": {"server": {"evaluate_on": "both"}},
}
KILLS = (
    KillAt("server", "round_committed", 1),
    KillAt("far-0002", "received", 2),
    KillAt("server", "received", 3),
)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(values, id=name, marks=[] if name == "buffered" else [pytest.mark.soak])
        for name, values in MODES.items()
    ],
)
def test_kills_change_nothing_in_any_mode(tmp_path: Path, values: dict[str, Any]) -> None:
    for name, kills in (("whole", ()), ("killed", KILLS)):
        copied = {key: dict(value) for key, value in values.items()}
        assert simulate_run(scenario(**copied), tmp_path / name, kills) == "completed"
        result = audit(tmp_path / name)
        assert result.agrees, result.first
    whole, killed = tables_of(tmp_path / "whole"), tables_of(tmp_path / "killed")
    assert whole == killed
    assert all(rows for rows in whole)


def test_with_both_the_loss_is_that_of_the_server_and_parts_are_those_of_devices(
    tmp_path: Path,
) -> None:
    for where in ("server", "devices", "both"):
        simulate_run(scenario(server={"evaluate_on": where}), tmp_path / where)
    server, devices, both = (tables_of(tmp_path / w) for w in ("server", "devices", "both"))
    assert both == [server[0], *devices[1:]]
    assert server[1:] == [[], []]


PACK = {"devices_per_process": 3}


def test_packs_partial_sums_and_training_together_report_the_same(tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "pack": {"group": PACK},
        "sums": {"group": {**PACK, "partial_sums": True}},
    }
    for name, more in cases.items():
        simulate_run(scenario(**more), tmp_path / name)
    plain, pack, sums = (tables_of(tmp_path / name) for name in cases)
    assert plain == pack == sums
    simulate_run(scenario(group=PACK, training={"together": 3}), tmp_path / "together")
    for one, other in zip(plain[2], tables_of(tmp_path / "together")[2], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)


def test_a_run_ends_at_its_target(tmp_path: Path) -> None:
    simulate_run(scenario(server={"rounds": 4}), tmp_path / "whole")
    loss = tables_of(tmp_path / "whole")[0][1]["loss"]
    server = {"rounds": 4, "target": {"loss": loss}}
    simulate_run(scenario(server=server), tmp_path / "run")
    with Account(tmp_path / "run") as account:
        assert account.rounds["round"].tolist() == [1, 2]


def test_a_target_for_what_devices_do_not_report_ends_the_run(tmp_path: Path) -> None:
    server = {"target": {"at_least": {"f1": 0.5}}}
    with pytest.raises(RunFailed, match="the task measures no 'f1'"):
        simulate_run(scenario(server=server), tmp_path / "run")


def test_what_no_scenario_asks_for_is_not_measured(tmp_path: Path) -> None:
    simulate_run(scenario(server={"evaluate_on": "server"}), tmp_path / "run")
    with Account(tmp_path / "run") as account:
        assert account.contributions["received_loss"].isna().all()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a word": ({"server": {"evaluate_on": "device"}}, "'server', 'devices' or 'both'"),
    "groups": ({"server": {"evaluate_groups": True}}, "groups and devices are measured on devices"),
    "the best version": (
        {"server": {"best": {}}},
        "the best version is found where the server evaluates",
    ),
    "privacy": (
        {"server": {"privacy": {"clip": 1.0, "noise": 1.0, "where": "device"}}},
        "devices also report metrics",
    ),
    "a GPU": (
        {"group": {"device": {"torch_device": "cuda"}}},
        "devices evaluate models on the CPU",
    ),
}


@pytest.mark.parametrize(("values", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_makes_no_sense_is_refused(values: dict[str, Any], why: str) -> None:
    copied = {key: dict(value) for key, value in values.items()}
    with pytest.raises(ConfigError) as error:
        scenario(**copied)
    assert why in str(error.value)
