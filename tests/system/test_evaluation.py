"""Evaluation per group and per device, in a run over real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.emulator import run
from muster.emulator.report import write_report

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_groups_and_devices_are_measured_on_what_they_hold_out(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        task={"name": "linear", "dimension": 5, "heterogeneity": 1.0, "validation_ratio": 0.2},
        server={"rounds": 4, "evaluate_every": 2, "evaluate_groups": True,
                "evaluate_devices": True},
        groups=[{"name": "few", "count": 2}, {"name": "many", "count": 3}],
    )  # fmt: skip
    done = run(planned, out=tmp_path / "run")
    (weights,) = load_file(done.folder / "model.safetensors").values()
    task = planned.task.open(planned.devices, planned.seed)
    losses = []
    for position in range(5):
        held = task.validation(position)
        assert len(held) == 10
        losses.append(np.mean((held.x @ weights.ravel() - held.y) ** 2) / 2)

    devices = done.ledger.device_evaluations
    assert sorted(set(devices["version"])) == [0, 2, 4]
    last = devices[devices["version"] == 4]
    assert list(last["client"]) == ["few-0000", "few-0001", "many-0000", "many-0001", "many-0002"]
    np.testing.assert_allclose(last["loss"], losses, rtol=1e-4)
    assert last["accuracy"].isna().all()

    groups = done.ledger.group_evaluations.set_index(["round", "group"])
    assert groups.loc[(4, "few"), "loss"] == pytest.approx(np.mean(losses[:2]), rel=1e-4)
    assert groups.loc[(4, "many"), "loss"] == pytest.approx(np.mean(losses[2:]), rel=1e-4)
    assert list(groups["examples"]) == [20, 30] * 3

    final = json.loads((done.folder / "summary.json").read_text())["final"]
    assert final["groups"].keys() == {"few", "many"}
    assert (final["devices"]["of"], final["devices"]["measured"]) == ("loss", 5)
    assert final["devices"]["max"] == pytest.approx(max(losses), rel=1e-4)
    write_report(done.folder, "png")
    assert (done.folder / "figures/groups.png").exists()
