"""Public model definitions train in processes, to the same bits twice and after kills."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tests.models.zoo import ZOO

from muster.common.config import validate
from muster.emulator import run
from muster.emulator.scenario.scenario import Scenario

_NEEDED = ("torchvision", "timm", "transformers", "peft", "torch_geometric", "lightning")
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in _NEEDED),
        reason="needs public models: make test-models",
    ),
]


def scenario(entry: str, **more: Any) -> Scenario:
    values = {
        "name": "zoo",
        "seed": 3,
        "task": {"name": "zoo:make_task", "entry": entry},
        "training": {"learning_rate": 0.05, "local_epochs": 1, "batch_size": 6},
        "server": {"rounds": 3},
        "groups": [{"name": "phones", "count": 3}],
        **more,
    }
    return validate(Scenario, values, "zoo")


KILL = {
    "name": "kill",
    "do": "restart",
    "target": {"group": "phones", "count": 2},
    "when": {"round": 2},
}


@pytest.mark.parametrize("entry", ZOO)
def test_it_trains_to_the_same_bits_twice_and_after_kills(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    hashes = []
    for name, more in (("once", {}), ("again", {}), ("killed", {"faults": [KILL]})):
        done = run(scenario(entry, **more), out=tmp_path / name)
        assert done.status == "completed"
        hashes.append(json.loads((tmp_path / name / "summary.json").read_text())["model_sha256"])
    assert len(set(hashes)) == 1, hashes
