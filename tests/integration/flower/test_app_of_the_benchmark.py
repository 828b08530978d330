"""The app that `make bench-peers` runs under Flower and under muster trains on muster's devices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from muster.common.config import validate
from muster.tasks.flower.opened import Flower
from muster.tasks.parts import layout_of, vector_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.tasks.flower.opened import OpenFlower

APP = Path(__file__).parents[3] / "benchmarks/peers/fashion"
NODES = 4
EXAMPLES = 20


@pytest.fixture(params=["mlp", "cnn"])
def task(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenFlower]:
    pytest.importorskip("flwr", reason="needs Flower, the extra flower")
    import torch

    draws = np.random.default_rng(1)
    for node in range(NODES):
        x = draws.integers(0, 256, (EXAMPLES, 28, 28)).astype(np.uint8)
        np.savez(tmp_path / f"{node}.npz", x=x, y=draws.integers(0, 10, EXAMPLES))
    config = {"data": str(tmp_path), "network": request.param, "fraction-train": 0.5}
    values = {"name": "flower", "app": str(APP), "examples": EXAMPLES, "run_config": config}
    monkeypatch.setattr(sys, "path", [*sys.path])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield validate(Flower, values, "test").open(NODES, seed=1)
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.partition(".")[0] == "fashion_app"]:
        del sys.modules[name]


def test_the_app_trains_on_the_data_of_its_node(task: OpenFlower) -> None:
    module = task.module()
    assert layout_of(module).schema.parameters in {50_890, 44_426}
    received = vector_of(module)
    updates = [task.train(i, f"nodes-{i}", received, 1, 1, b"") for i in (0, 1)]
    assert [update.examples for update in updates] == [EXAMPLES, EXAMPLES]
    first, second = (update.trained for update in updates)
    assert (first != received).any()
    assert (first != second).any()
    again = task.train(0, "nodes-0", received, 1, 1, b"")
    np.testing.assert_array_equal(again.trained, first)
