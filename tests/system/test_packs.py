"""Devices that share a process are the same devices, and die together by name."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.common.errors import RunFailed
from muster.emulator import run
from muster.emulator.launch.doctor import gpus

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

SMALL = {"name": "linear", "dimension": 5, "heterogeneity": 1.0}
LARGE = {"name": "digits", "model": "mlp", "hidden": [300]}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("task", "compression"),
    [
        (SMALL, "none"),
        (SMALL, "top-k"),
        pytest.param(LARGE, "none", marks=pytest.mark.soak),
        (LARGE, "int8"),
    ],
    ids=["inline", "inline, top-k", "in chunks", "in chunks, int8"],
)
def test_packed_and_unpacked_devices_give_the_same_model(
    scenario: MakeScenario, tmp_path: Path, task: dict[str, Any], compression: str
) -> None:
    hashes = set()
    for together in (1, 2):
        group = {"name": "dev", "count": 5, "devices_per_process": together}
        link = {"compression": compression}
        planned = scenario(task=task, groups=[{**group, "link": link}])
        done = run(planned, out=tmp_path / str(together))
        assert set(done.ledger.contributions["outcome"]) == {"folded"}
        assert len(list((done.folder / "logs").glob("dev-*"))) == -(-5 // together)
        # A model travels to a pack once in each of the five rounds, and is counted once.
        down = done.ledger.contributions["bytes_down"]
        assert down.sum() == done.summary["bytes_down"] == 5 * -(-5 // together) * down.max()
        hashes.add(done.summary["model_sha256"])
    assert len(hashes) == 1


def test_compression_saves_the_bytes_that_the_ledger_says(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    group = {"name": "dev", "count": 3, "link": {"compression": "float16"}}
    done = run(scenario(groups=[group]), out=tmp_path / "run")
    rows = done.ledger.contributions
    assert (rows["bytes_up"] * 2 == rows["bytes_down"]).all()
    assert (rows["bytes_saved"] == rows["bytes_up"]).all()


def processes_with_log(path: Path) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            log = os.readlink(process / "fd/2")
        except OSError:
            continue
        if process.name.isdigit() and log == str(path.resolve()):
            found.append(int(process.name))
    return found


def test_a_pack_that_dies_is_reported_with_its_devices(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    folder = tmp_path / "run"

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == 2:
            for pid in processes_with_log(folder / "logs/dev-0003..dev-0005.log"):
                os.kill(pid, signal.SIGKILL)

    group = {"name": "dev", "count": 6, "devices_per_process": 3}
    planned = scenario(groups=[group], server={"rounds": 2000, "evaluate_every": 1000})
    with pytest.raises(
        RunFailed, match=r"dev-0003\.\.dev-0005 \(3 devices\) ended unexpectedly by sig"
    ):
        run(planned, out=folder, show=kill)


@pytest.mark.parametrize(
    ("task", "compression"), [(SMALL, "top-k"), (LARGE, "none")], ids=["inline", "in chunks"]
)
def test_a_pack_that_sends_sums_and_dies_gives_the_same_model(
    scenario: MakeScenario, tmp_path: Path, task: dict[str, Any], compression: str
) -> None:
    folder, killed = tmp_path / "sums", list[int]()

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == 2 and not killed:
            killed.extend(processes_with_log(folder / "logs/dev-0002..dev-0003.log"))
            os.kill(killed[0], signal.SIGKILL)

    link = {"compression": compression}
    group = {"name": "dev", "count": 4, "devices_per_process": 2, "link": link}
    server = {"rounds": 30, "evaluate_every": 30}
    updates = run(scenario(task=task, groups=[group], server=server), out=tmp_path / "updates")
    planned = scenario(
        task=task,
        groups=[{**group, "partial_sums": True}],
        server=server,
        launch={"restarts": 1},
    )
    sums = run(planned, out=folder, show=kill)
    assert killed
    assert sums.summary["model_sha256"] == updates.summary["model_sha256"]
    assert set(sums.ledger.contributions["bytes_up"]) == {0}


def test_spawned_devices_are_the_same_devices(scenario: MakeScenario, tmp_path: Path) -> None:
    hashes = set()
    for start in ("fork", "spawn"):
        group = {"name": "dev", "count": 3, "devices_per_process": 2}
        planned = scenario(groups=[group], launch={"start": start})
        done = run(planned, out=tmp_path / start)
        hashes.add(done.summary["model_sha256"])
    assert len(hashes) == 1


def test_a_spawned_pack_that_dies_is_started_again(scenario: MakeScenario, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed: list[int] = []

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == 2 and not killed:
            killed.extend(processes_with_log(folder / "logs/dev-0000.log"))
            os.kill(killed[0], signal.SIGKILL)

    planned = scenario(
        groups=[{"name": "dev", "count": 2}],
        server={"rounds": 1000, "evaluate_every": 1000},
        launch={"start": "spawn", "restarts": 1},
    )
    done = run(planned, out=folder, show=kill)
    assert done.status == "completed"
    assert [event["process"] for event in done.ledger.events("restarted")] == ["dev-0000"]


@pytest.mark.gpu
@pytest.mark.skipif(gpus() == 0, reason="this machine has no GPU")
def test_a_gpu_agrees_with_the_cpu(scenario: MakeScenario, tmp_path: Path) -> None:
    # Sums of float32 in another order: five rounds of three steps stay within 1e-4.
    models = {}
    for device in ("cpu", "cuda"):
        group = {"name": "dev", "count": 3, "device": {"torch_device": device}}
        planned = scenario(task={"name": "digits", "model": "mlp"}, groups=[group])
        done = run(planned, out=tmp_path / device)
        models[device] = load_file(done.folder / "model.safetensors")
    for name, tensor in models["cpu"].items():
        np.testing.assert_allclose(models["cuda"][name], tensor, rtol=1e-4, atol=1e-4)
