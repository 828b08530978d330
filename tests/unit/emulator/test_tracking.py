"""What a tracker is told of a run, and when."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.unit.emulator.conftest import RunFolder

from muster.common.errors import ConfigError
from muster.common.testing import ManualClock
from muster.emulator.comparison import compare
from muster.emulator.export.metrics import MetricPoint
from muster.emulator.export.tracker import Tracker
from muster.emulator.export.tracking import TRACKERS, follow, news, tracking
from muster.emulator.records.account import Account


class Notebook(Tracker):
    """A tracker that notes what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, account: Account) -> None:
        self.notes.append(f"begin {account.name}")

    def log(self, points: Sequence[MetricPoint]) -> None:
        self.notes += [
            f"{p.name} {p.round}" for p in points if p.name in ("model/loss", "group a/loss")
        ]

    def end(self, account: Account) -> None:
        self.notes.append(f"end {account.run.status}")


def followed(folder: Path, *steps: Callable[[], object]) -> list[str]:
    """Follow a run; at each look one of the steps has happened, and with the last it ends."""
    tracker, left = Notebook(), list(steps)

    def wait(seconds: float) -> bool:
        left.pop(0)()
        return not left

    follow(folder, tracker, folder / "setup/tracking/x.json", wait, ManualClock())
    return tracker.notes


def nothing() -> None:
    return


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    (folder.path / "setup").mkdir()
    folder.clients("a")
    folder.evaluate(2.0)
    return folder


def one_more(run: RunFolder, loss: float) -> None:
    run.round({"a": "folded"})
    run.evaluate(loss)
    run.commit()


def test_a_tracker_gets_every_value_once_while_the_run_goes_on(run: RunFolder) -> None:
    def ended() -> None:
        run.end("completed")
        run.commit()

    notes = followed(
        run.path,
        run.commit,
        nothing,
        lambda: one_more(run, 1.5),
        lambda: one_more(run, 1.0),
        ended,
    )
    assert notes == [
        "begin small-world",
        *(f"model/loss {number}" for number in (0, 1, 2)),
        "end completed",
    ]


def test_a_resumed_run_goes_on_where_the_tracker_was(run: RunFolder) -> None:
    followed(run.path, lambda: one_more(run, 1.5))
    assert followed(run.path, lambda: one_more(run, 1.0)) == [
        "begin small-world",
        "model/loss 2",
        "end None",
    ]


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "setup").mkdir()
    assert followed(tmp_path, nothing, nothing) == []


def test_news_are_the_later_rounds_of_each_metric() -> None:
    points = [MetricPoint(name, round, 0.0, 0.0) for name in "ab" for round in (0, 1, 2)]
    found = [(point.name, point.round) for point in news(points, {"a": 1})]
    assert found == [("a", 2), ("b", 0), ("b", 1), ("b", 2)]


def test_an_unknown_tracker_is_refused() -> None:
    with (
        pytest.raises(
            ConfigError, match=r"no tracker 'mlfow'; expected mlflow, tensorboard, wandb"
        ),
        tracking(["mlfow"]),
    ):
        pytest.fail("it was not refused")


def test_every_tracker_has_an_extra_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in TRACKERS.items():
        monkeypatch.setitem(__import__("sys").modules, kind.package, None)
        with (
            pytest.raises(ConfigError, match=rf"--track {name} needs .*\[{name}\]"),
            tracking([name]),
        ):
            pytest.fail("it was not refused")


def test_a_comparison_without_the_package_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    scenario = Path(__file__).parents[3] / "examples/digits.toml"
    with pytest.raises(ConfigError, match="--track wandb needs wandb"):
        compare(scenario, vary={}, out=tmp_path / "there", track=["wandb"])
    assert not (tmp_path / "there").exists()
