"""A Flower app, unchanged, on real processes of which some are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from safetensors.numpy import load_file

from muster.chaos.run_processes import kill_process, run_processes
from muster.client.device.memory import Memory
from muster.common import seeds
from muster.common.errors import RunFailed
from muster.emulator import Run, resume, run
from muster.emulator.scenario.reading import read_scenario

pytest.importorskip("flwr", reason="needs Flower, the extra flower")
pytestmark = pytest.mark.usefixtures("nothing_left")

EXAMPLE = Path(__file__).parents[2] / "examples/flower/digits.toml"
STRATEGY = EXAMPLE.with_name("strategy.toml")

KILLS = 4


class Killer:
    """Kills a process of a part of the run, or of a name, with SIGKILL at every third committed
    round."""

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part
        self._draws = seeds.stream(1, "kills", part)
        self.left = KILLS

    def show(self, event: dict[str, Any]) -> None:
        if event["event"] != "round_committed" or event["round"] % 3 or not self.left:
            return
        victims = [
            each for each in run_processes(self._folder) if self._part in (each.part, each.name)
        ]
        if victims and kill_process(victims[self._draws.integers(len(victims))], self._folder):
            self.left -= 1


def killed_run(example: Path, folder: Path, part: str) -> Run:
    """Run an example while processes of a part of it are killed."""
    killer = Killer(folder, part)
    scenario = read_scenario(example, [("launch.restarts", KILLS)])
    done = run(scenario, out=folder, show=killer.show, show_every_s=0.005, report=False)
    assert killer.left == 0, "the run was over before the killer was done"
    return done


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(read_scenario(EXAMPLE), out=tmp_path_factory.mktemp("flower") / "run", report=False)


def test_the_example_learns_with_the_data_and_the_rule_that_it_names(undisturbed: Run) -> None:
    assert undisturbed.summary["final"]["accuracy"] > 0.8
    folded = undisturbed.ledger.contributions.query("outcome == 'folded'")
    # 1,797 digits, every tenth of them, less a fifth
    assert set(folded["examples"]) == {144}
    assert folded["loss"].notna().all()
    tensors = load_file(undisturbed.folder / "model.safetensors")
    assert "layers.1.running_mean" in tensors
    assert "layers.1.num_batches_tracked" not in tensors
    assert np.abs(tensors["layers.1.running_mean"]).max() > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", ["device", "server"])
def test_kills_change_neither_the_model_nor_the_state_of_the_apps_contexts(
    undisturbed: Run, tmp_path: Path, part: str
) -> None:
    done = killed_run(EXAMPLE, tmp_path / "killed", part)
    assert done.summary["model_sha256"] == undisturbed.summary["model_sha256"]
    for client in done.ledger.clients["client"]:
        states = [
            Memory(each.folder / "devices" / client).held[-1].after.own
            for each in (done, undisturbed)
        ]
        assert states[0] == states[1] != b""


@pytest.fixture(scope="module")
def with_strategy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("strategy") / "run"
    return run(read_scenario(STRATEGY), out=folder, report=False)


def test_the_strategy_of_the_app_makes_the_versions(with_strategy: Run) -> None:
    assert with_strategy.summary["final"]["accuracy"] > 0.8
    log = (with_strategy.folder / "logs/strategy.log").read_text()
    assert "Starting FedAvg strategy" in log
    assert 0 < with_strategy.summary["participation_rate"] < 1


def test_what_the_strategy_aggregates_is_in_the_ledger(with_strategy: Run) -> None:
    ledger = with_strategy.ledger
    measured = ledger.app_metrics.pivot(index="round", columns="metric", values="value")
    folded = ledger.contributions.query("outcome == 'folded'")
    products = (folded["loss"] * folded["examples"]).groupby(folded["round"]).sum()
    means = products / folded.groupby("round")["examples"].sum()
    np.testing.assert_allclose(measured["train.train_loss"], means, rtol=1e-6)
    # All nodes evaluate the version of a round, for the strategy and for muster.
    versions = ledger.evaluations.set_index("round")["accuracy"].drop(0)
    np.testing.assert_allclose(measured["evaluate.accuracy"], versions, rtol=1e-6)
    assert list(measured.index) == list(range(1, 16))


@pytest.mark.sampled(1)
@pytest.mark.timeout(1200)  # every restart plays all rounds of the app again
@pytest.mark.parametrize("part", ["device", "server"])
def test_kills_change_no_version_that_a_strategy_makes(
    with_strategy: Run, tmp_path: Path, part: str
) -> None:
    done = killed_run(STRATEGY, tmp_path / "killed", part)
    assert done.summary["model_sha256"] == with_strategy.summary["model_sha256"]
    assert_frame_equal(done.ledger.app_metrics, with_strategy.ledger.app_metrics)


@pytest.mark.timeout(1200)
def test_a_run_whose_strategy_was_killed_goes_on_where_it_was(
    with_strategy: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    killer = Killer(folder, "strategy")
    with pytest.raises(RunFailed, match="process of the strategy ended"):
        run(read_scenario(STRATEGY), out=folder, show=killer.show, report=False)
    assert killer.left == KILLS - 1
    done = resume(folder, report=False)
    assert done.summary["model_sha256"] == with_strategy.summary["model_sha256"]


def test_devices_of_one_process_train_as_they_would_alone(undisturbed: Run, tmp_path: Path) -> None:
    packed = read_scenario(EXAMPLE, ["groups[0].devices_per_process=5"])
    done = run(packed, out=tmp_path / "packed", report=False)
    assert done.summary["model_sha256"] == undisturbed.summary["model_sha256"]
