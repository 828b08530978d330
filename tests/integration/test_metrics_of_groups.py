"""The metrics of a task of the user's own, by group and by device."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from muster.common.config import validate
from muster.common.own_code import use
from muster.emulator.export.metrics import metric_points
from muster.emulator.records.account import Account
from muster.emulator.records.parts import metrics_of
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
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


def test_groups_and_devices_have_the_metrics_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "my_values.py").write_text(OWN)
    use(str(tmp_path))
    scenario = validate(
        Scenario,
        {
            "name": "values",
            "modules": str(tmp_path),
            "task": {"name": "my_values:Values"},
            "server": {"rounds": 2, "evaluate_groups": True, "evaluate_devices": True},
            "groups": [{"name": "a", "count": 2}, {"name": "b", "count": 1}],
        },
        "values",
    )
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
