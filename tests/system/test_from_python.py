"""Runs that were started from Python with a model and data that no file has."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from muster.common.errors import ConfigError
from muster.emulator.run_audit import audit
from muster.emulator.runs import running
from muster.torch import read, resume, run, wrap

pytestmark = pytest.mark.usefixtures("nothing_left")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(240, 4)).astype(np.float32)
Y = (X @ RANDOM.normal(size=(4, 3))).argmax(axis=1)


class Net(nn.Module):
    """A network with batch normalisation, whose size depends on the data."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layers(x))


def test_a_run_from_python_is_a_run_like_any_other(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 4, "devices": 3, "learning_rate": 0.2, "quiet": True}
    whole = run(Net, (X, Y), out=tmp_path / "whole", **settings)
    assert whole.status == "completed"
    assert whole.ledger.evaluations["loss"].iloc[-1] < whole.ledger.evaluations["loss"].iloc[0]
    assert (result := audit(whole.folder, evaluate=True)).agrees, result.first

    shorter = run(Net, (X, Y), out=tmp_path / "shorter", **{**settings, "rounds": 2})
    longer = resume(shorter.folder, rounds=4, quiet=True)
    assert longer.summary["model_sha256"] == whole.summary["model_sha256"]

    module = read(whole.folder).module().eval()
    accuracy = (module(torch.from_numpy(X)).argmax(1) == torch.from_numpy(Y)).float().mean()
    assert accuracy.item() > 0.6
    shown = whole.html()
    assert "data:image/png;base64," in shown
    assert "Nothing: every call led to an update that counted" in shown


def test_variants_of_a_task_from_python_are_compared(tmp_path: Path) -> None:
    found = wrap(Net, (X, Y)).compare(
        {"aggregator": ["fedavg", "fedadam"]},
        out=tmp_path / "compared",
        rounds=2,
        devices=2,
        quiet=True,
    )
    assert found.status == "completed"
    assert found.runs["variant"].tolist() == ["aggregator=fedavg", "aggregator=fedadam"]
    shown = found.html()
    assert "data:image/png;base64," in shown
    assert "aggregator=fedadam" in shown


class Narrow(Net):
    """A network that does not take the examples."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layers(x[:, :2]))


def test_a_model_that_does_not_fit_the_data_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the model fails with inputs of float32 and shape"):
        run(Narrow, (X, Y), out=tmp_path / "narrow", rounds=2, devices=2, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_ctrl_c_in_a_notebook_stops_the_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook calls code inside a running loop, and Ctrl-C raises KeyboardInterrupt there."""
    real = running.run

    def interrupted(*given: Any, **options: Any) -> Any:
        def show(event: dict[str, Any]) -> None:
            if event["event"] == "round_committed" and event["round"] == 2:
                os.kill(os.getpid(), signal.SIGINT)

        return real(*given, **{**options, "show": show})

    monkeypatch.setattr(running, "run", interrupted)

    async def cell() -> Any:
        return run(Net, (X, Y), out=tmp_path / "long", rounds=100_000, devices=2, quiet=True)

    loop = asyncio.new_event_loop()
    stopped = loop.run_until_complete(cell())
    loop.close()
    assert stopped.status == "stopped"
    done = len(stopped.ledger.rounds)
    assert resume(stopped.folder, rounds=done + 1, quiet=True).status == "completed"
