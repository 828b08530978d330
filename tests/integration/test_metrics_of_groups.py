"""The metrics of a task of the user's own, by group and by device."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from muster.common.config import validate
from muster.common.own_code import use
from muster.emulator.export.metrics import metric_points
from muster.emulator.live.device_life import device_life
from muster.emulator.live.page_state import sections
from muster.emulator.live.run_reader import RunReader
from muster.emulator.records.account import Account
from muster.emulator.records.parts import metrics_of
from muster.emulator.records.summary import number_text
from muster.emulator.report.page import write_report
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run

OWN = """
import numpy as np
import torch

from muster.tasks.task import Examples, OpenTask, Task, predict


class Values(Task):
    def open(self, population, seed):
        return OpenValues(population)


class OpenValues(OpenTask):
    def __init__(self, population):
        self.examples = [4 + index for index in range(population)]

    def client(self, index):
        x = np.linspace(0, 1, 4 + index, dtype=np.float32)
        return Examples(x[:, None], index * x)

    def test(self):
        return self.client(0)

    def module(self):
        module = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(module.weight)
        return module

    def loss(self, outputs, y):
        return ((outputs[:, 0] - y) ** 2).mean()

    def metrics_on(self, module, examples):
        off = predict(module, examples.x)[:, 0].numpy() - examples.y
        return {**super().metrics_on(module, examples), "worst": np.abs(off).max()}
"""


def scenario_of(folder: Path, server: dict[str, Any], **more: Any) -> Scenario:
    (folder / "my_values.py").write_text(OWN)
    use(str(folder))
    values = {
        "name": "values",
        "modules": str(folder),
        "task": {"name": "my_values:Values"},
        "server": server,
        "groups": [{"name": "a", "count": 2}, {"name": "b", "count": 1}],
    }
    return validate(Scenario, values | more, "values")


def test_groups_and_devices_have_the_metrics_of_the_task(tmp_path: Path) -> None:
    server = {"rounds": 2, "evaluate_groups": True, "evaluate_devices": True}
    scenario = scenario_of(tmp_path, server)
    run = tmp_path / "run"
    assert simulate_run(scenario, run) == "completed"
    (slope,) = load_file(run / "model.safetensors").values()
    worst = [abs(float(slope.item()) - index) for index in range(3)]  # where x is 1
    with Account(run) as account:
        devices = account.device_evaluations.query("version == 2").set_index("client")["metrics"]
        groups = account.group_evaluations.query("version == 2").set_index("group")["metrics"]
        points = {(p.name, p.round): p.value for p in metric_points(account)}
    for index, client in enumerate(["a-0000", "a-0001", "b-0000"]):
        of_device = metrics_of(devices[client])
        assert of_device == {"worst": pytest.approx(worst[index], rel=1e-5)}
    mean = (4 * worst[0] + 5 * worst[1]) / 9
    assert metrics_of(groups["a"]) == {"worst": pytest.approx(mean, rel=1e-5)}
    assert points["group b/worst", 2] == pytest.approx(worst[2], rel=1e-5)
    final = json.loads((run / "summary.json").read_text())["final"]
    assert final["groups"]["a"]["metrics"] == {"worst": pytest.approx(mean, rel=1e-5)}
    found = [str(d) for check in audit(run, evaluate=True).checks for d in check.differences]
    assert found == []

    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE group_evaluations SET metrics = '{}' WHERE version = 1")
    found = [str(d) for check in audit(run).checks for d in check.differences]
    assert any("worst in group_evaluations, version 1, a" in text for text in found), found


KILLS = (KillAt("server", "round_committed", 1), KillAt("a-0001", "received", 2))


@pytest.mark.parametrize("kills", [(), KILLS], ids=["whole", "killed"])
def test_devices_report_the_metrics_of_the_task(tmp_path: Path, kills: tuple[KillAt, ...]) -> None:
    scenario = scenario_of(
        tmp_path,
        {"rounds": 3, "evaluate_on": "devices"},
        expect=[{"that": 'metric("worst", "b") > metric("worst", "a")', "always": True}],
    )
    run, first = tmp_path / "run", tmp_path / "first"
    assert simulate_run(scenario, run, kills) == "completed"
    one = scenario_of(tmp_path, {"rounds": 2, "evaluate_on": "devices"})
    assert simulate_run(one, first) == "completed"
    (slope,) = load_file(first / "model.safetensors").values()
    worst = [abs(float(slope.item()) - index) for index in range(3)]  # where x is 1
    with Account(run) as account:
        devices = account.device_evaluations.query("version == 2")["metrics"].map(metrics_of)
        whole = account.evaluations.query("version == 2")["metrics"].map(metrics_of).iloc[0]
    found = [of_device["worst"] for of_device in devices]
    assert found == pytest.approx(worst, rel=1e-5)
    mean = (4 * worst[0] + 5 * worst[1] + 6 * worst[2]) / 15
    assert whole == {"devices": 3.0, "worst": pytest.approx(mean, rel=1e-5)}
    summary = json.loads((run / "summary.json").read_text())
    assert summary["final"]["groups"]["b"]["metrics"] == {"worst": pytest.approx(worst[2])}
    spread = summary["final"]["devices"]["metrics"]["worst"]
    assert (spread["min"], spread["max"]) == pytest.approx((min(worst), max(worst)))
    assert [judged["holds"] for judged in summary["expectations"]] == [True]
    assert audit(run).agrees
    page = write_report(run).read_text()
    assert f"Devices: worst {number_text(min(worst))} to {number_text(max(worst))}, median" in page
    life = device_life(run / "ledger.sqlite", "b-0000")
    assert life["evaluation"]["metrics"] == {"worst": pytest.approx(worst[2], rel=1e-5)}
    reader = RunReader(run)
    reader.read()
    shown = sections(reader.state, "uuu", "completed")
    assert shown["run"]["metrics"] == {"devices": 3.0, "worst": pytest.approx(mean, rel=1e-5)}
    of_b = {"worst": pytest.approx(worst[2], rel=1e-5)}
    assert [group["metrics"] for group in shown["groups"]][1] == of_b

    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE device_evaluations SET metrics = '{}' WHERE version = 1")
    found = [str(d) for check in audit(run).checks for d in check.differences]
    assert any("worst in device_evaluations of version 1" in text for text in found), found
