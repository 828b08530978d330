"""A scenario with data, a model and a transform of the user's own, of which the head stays on each
device: for tests on all backends."""

from pathlib import Path
from typing import Any

import numpy as np

from muster.client.device.memory import Memory
from muster.common.own_code import use

CODE = """
from torch import nn


def halved(x):
    return x.astype("float32") / 2


def network(inputs, outputs):
    body = nn.Sequential(nn.Linear(*inputs, 8), nn.BatchNorm1d(8), nn.ReLU())
    return nn.Sequential(body, nn.Linear(8, outputs))
"""


def own_personal(folder: Path) -> dict[str, Any]:
    """The settings of the scenario, whose files are written into the folder."""
    (folder / "code").mkdir()
    (folder / "code/my_network.py").write_text(CODE)
    use(str(folder / "code"))
    random = np.random.default_rng(1)
    x = random.normal(size=(90, 3)).astype(np.float32)
    user = np.arange(90) % 3
    y = (x.sum(axis=1) + user > 1).astype(np.int64)
    np.savez(folder / "sites.npz", x=x, y=y, site=user)
    return {
        "name": "personal",
        "modules": str(folder / "code"),
        "task": {
            "name": "own",
            "source": {"kind": "npz", "path": str(folder / "sites.npz"), "user": "site"},
            "transforms": ["my_network:halved"],
            "model": {"kind": "my_network:network"},
            "partition": {"kind": "natural"},
            "parts": {"local": ["1.*"]},
        },
        "training": {"local_epochs": 2, "batch_size": 8},
        "server": {"rounds": 4, "evaluate_on": "devices"},
        "groups": [
            {"name": "near", "count": 2},
            {"name": "far", "count": 1, "training": {"optimizer": "adam", "learning_rate": 0.01}},
        ],
    }


def parts_of(folder: Path) -> dict[str, bytes]:
    """The model of a run, and what each device keeps of it."""
    found = {"model": (folder / "model.safetensors").read_bytes()}
    for device in sorted((folder / "devices").iterdir()):
        memory = Memory(device)
        found[device.name] = memory.before(5).local
        memory.close()
    return found
