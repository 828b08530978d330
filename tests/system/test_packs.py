"""Devices that share a process are the same devices, and die together by name."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from muster.common.errors import RunFailed
from muster.emulator import run

pytestmark = pytest.mark.usefixtures("nothing_left")

SMALL = {"name": "linear", "dimension": 5, "heterogeneity": 1.0}
LARGE = {"name": "digits", "model": "mlp", "hidden": [300]}


@pytest.mark.parametrize("task", [SMALL, LARGE], ids=["inline", "in chunks"])
@pytest.mark.parametrize("compression", ["none", "int8", "top-k"])
def test_packed_and_unpacked_devices_give_the_same_model(
    scenario, tmp_path: Path, task: dict[str, Any], compression: str
) -> None:
    hashes = set()
    for together in (1, 2, 5):
        group = {"name": "dev", "count": 5, "devices_per_process": together}
        link = {"compression": compression}
        planned = scenario(task=task, groups=[{**group, "link": link}])
        done = run(planned, out=tmp_path / str(together))
        assert set(done.ledger.contributions["outcome"]) == {"folded"}
        assert len(list((done.folder / "logs").glob("dev-*"))) == -(-5 // together)
        hashes.add(done.summary["model_sha256"])
    assert len(hashes) == 1


def test_compression_saves_the_bytes_that_the_ledger_says(scenario, tmp_path: Path) -> None:
    group = {"name": "dev", "count": 3, "link": {"compression": "float16"}}
    done = run(scenario(groups=[group]), out=tmp_path / "run")
    rows = done.ledger.contributions
    assert (rows["bytes_up"] * 2 == rows["bytes_down"]).all()
    assert (rows["bytes_saved"] == rows["bytes_up"]).all()


def test_a_pack_that_dies_is_reported_with_its_devices(scenario, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == 2:
            for process in Path("/proc").iterdir():
                try:
                    log = os.readlink(process / "fd/2")
                except OSError:
                    continue
                if log == str(folder.resolve() / "logs/dev-0003..dev-0005.log"):
                    os.kill(int(process.name), signal.SIGKILL)

    group = {"name": "dev", "count": 6, "devices_per_process": 3}
    planned = scenario(groups=[group], server={"rounds": 2000, "evaluate_every": 1000})
    with pytest.raises(RunFailed, match=r"dev-0003\.\.dev-0005 \(3 devices\) ended unasked by sig"):
        run(planned, out=folder, show=kill)
