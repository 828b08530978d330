"""Runs that trackers record while they go on."""

import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.system.conftest import MakeScenario

from muster.cli.commands import main
from muster.emulator.comparison import compare
from muster.emulator.export.tracking import tracking
from muster.emulator.runs import running
from muster.emulator.scenario.scenario import Scenario

DIGITS = Path(__file__).parents[2] / "examples/digits.toml"

pytestmark = pytest.mark.usefixtures("nothing_left")

BAD = {
    "hangs": "import threading\n\ndef init(**settings):\n    threading.Event().wait()\n",
    "fails": "def init(**settings):\n    raise RuntimeError('no key')\n",
    "ends the process": "import os\n\ndef init(**settings):\n    os._exit(3)\n",
}


@pytest.fixture(scope="module")
def long(scenario: MakeScenario) -> Scenario:
    return scenario(server={"rounds": 30})


@pytest.fixture(scope="module")
def untracked(long: Scenario, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of the same run without a tracker."""
    folder = tmp_path_factory.mktemp("untracked") / "run"
    return str(running.run(long, out=folder, report=False).summary["model_sha256"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("what", "wandb"), BAD.items(), ids=BAD)
def test_a_bad_tracker_neither_stops_nor_changes_a_run(
    tmp_path: Path,
    long: Scenario,
    untracked: str,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    wandb: str,
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/wandb.py").write_text(wandb)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "packages"), *sys.path]))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    with tracking(["wandb"], said.append, patience_s=0.5 if what == "hangs" else 60.0) as begin:
        done = running.run(long, out=tmp_path / "tracked", begin=begin, report=False)
    assert done.status == "completed"
    [sentence] = said
    assert sentence.startswith(
        f"--track wandb {'did not end within' if what == 'hangs' else 'fail'}"
    )
    assert "the run is not affected. See tracked/logs/track-wandb.log" in sentence
    assert done.summary["model_sha256"] == untracked


def tracked(folder: Path, scenario: Scenario, name: str) -> None:
    """A run of a tracker that is resumed for two more rounds."""
    said: list[str] = []
    with tracking([name], said.append) as begin:
        running.run(scenario, out=folder, begin=begin, report=False)
    with tracking([name], said.append) as begin:
        running.resume(folder, rounds=7, begin=begin, report=False)
    log = folder / f"logs/track-{name}.log"
    assert not said, log.read_text()


LOSSES = [*range(8)]
"""The rounds of which there is a loss: that of the initial model, and of each round."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from within MLflow
def test_mlflow_has_one_run_with_every_value_once(
    tmp_path: Path, scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    tracked(tmp_path / "run", scenario(), "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/exports/mlflow/mlflow.db")
    numbers = [each.experiment_id for each in client.search_experiments()]
    [found] = client.search_runs(numbers)
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["server.rounds"] == "5"
    history = client.get_metric_history(found.info.run_id, "model/loss")
    assert [each.step for each in history] == LOSSES


def test_tensorboard_has_every_value_once(
    tmp_path: Path, scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.chdir(tmp_path)
    tracked(tmp_path / "run", scenario(), "tensorboard")
    events = module.EventAccumulator(str(tmp_path / "exports/tensorboard/run"))
    events.Reload()
    assert [event.step for event in events.Scalars("model/loss")] == LOSSES


def records(path: Path) -> Iterator[Any]:
    """The records of a file of wandb: a log of LevelDB, behind a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    content, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32_768 - at % 32_768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def test_wandb_continues_the_same_run_offline(
    tmp_path: Path, scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracked(tmp_path / "run", scenario(), "wandb")
    files = sorted((tmp_path / "exports/wandb").glob("offline-run-*/*.wandb"))
    found = [record for file in files for record in records(file)]
    runs = [record.run for record in found if record.WhichOneof("record_type") == "run"]
    assert len({run.run_id for run in runs}) == 1
    assert {(run.project, run.display_name) for run in runs} == {("test", "run")}
    config = {entry.key: json.loads(entry.value_json) for entry in runs[0].config.update}
    assert config["server"]["rounds"] == 5
    rows = [
        {item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
         for item in record.history.item}
        for record in found
        if record.WhichOneof("record_type") == "history"
    ]  # fmt: skip
    assert [row["round"] for row in rows if "model/loss" in row] == LOSSES


KEEPS = """
import json
from pathlib import Path


class Run:
    def __init__(self, settings):
        self.summary, self.of = {}, {name: settings[name] for name in ("project", "group", "name")}

    def define_metric(self, name, **how):
        pass

    def log(self, values):
        self.of["last"] = values["round"]

    def finish(self, exit_code):
        Path(self.of["name"] + ".json").write_text(json.dumps(self.of | self.summary))


def init(**settings):
    return Run(settings)
"""


def test_a_comparison_has_a_tracked_run_for_every_variant_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/wandb.py").write_text(KEEPS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "packages"), *sys.path]))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.chdir(tmp_path)
    small = ("--set", "server.rounds=2", "--set", "groups[0].count=2")
    asked = ("--vary", "training.local_epochs=1,2", "--seeds", "2", "--out", "there")
    result = CliRunner().invoke(
        main, ["compare", str(DIGITS), *asked, *small, "--track", "wandb", "--quiet"]
    )
    assert (result.exit_code, result.stderr) == (0, "")
    found = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("*.json"))]
    assert [run["name"] for run in found] == [
        f"local_epochs={epochs}-seed{seed}" for epochs in (1, 2) for seed in (1, 2)
    ]
    same = {"project": "digits", "group": "there", "last": 2, "status": "completed"}
    assert all(same.items() <= run.items() for run in found), found


def test_tensorboard_has_the_runs_of_a_comparison_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    found = compare(
        DIGITS,
        vary={"training.local_epochs": [1, 2]},
        settings=["server.rounds=1", "groups[0].count=2"],
        out="there",
        track=["tensorboard"],
    )
    assert found.status == "completed"
    names = [f"local_epochs={epochs}-seed1" for epochs in (1, 2)]
    files = tmp_path.glob("exports/tensorboard/there/*/events*")
    assert sorted(file.parent.name for file in files) == names
