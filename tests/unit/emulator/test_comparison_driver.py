"""Running a comparison, with run folders that are written and not run."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from click.testing import CliRunner

from muster.cli.commands import main
from muster.common.errors import ConfigError, RunFailed
from muster.emulator import Comparison, compare, resume_comparison
from muster.emulator.comparison import report_comparison
from muster.emulator.comparison.outcome import targets_of
from muster.emulator.comparison.plan import make_plan
from muster.emulator.comparison.tables import describe
from muster.emulator.records.account import Account
from muster.emulator.records.summary import summarise, write_summary
from muster.emulator.runs import running
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

VARY = {"server.rounds": [1, 2]}
SCENARIO = """
name = "plain"
seed = 4
[task]
name = "linear"
[server]
rounds = 3
target = { accuracy = 0.55 }
[[groups]]
name = "a"
count = 2
"""


FAILURE = (
    "the nursery\x1b[2J died. The last lines of its log:\n  Traceback\n  no such file\n"
    "Nothing has been trained. Mend the cause, and run it again"
)


class Runner:
    """Stands in for `running`: writes what a run of the scenario would leave.

    Attributes:
        fates: number of the call, from 1, to what happens then instead of "completed".
        calls: "run" or "resume" and the folder's name, in order.
    """

    def __init__(self, make_folder: Callable[[Path], RunFolder]) -> None:
        self._make_folder = make_folder
        self.fates: dict[int, str] = {}
        self.calls: list[str] = []

    def run(
        self, scenario: Scenario, *, out: Path, show: Callable[[dict[str, Any]], None]
    ) -> running.Run:
        self.calls.append(f"run {out.name}")
        fate = self.fates.get(len(self.calls), "completed")
        if fate == "interrupted":
            raise KeyboardInterrupt
        if fate == "never started":
            raise RunFailed(FAILURE)
        if fate == "stopped early":
            raise RunFailed("stopped before the run began")
        return self._leave(scenario, out, show, fate)

    def resume(self, folder: Path, *, show: Callable[[dict[str, Any]], None]) -> running.Run:
        self.calls.append(f"resume {folder.name}")
        scenario = read_scenario(folder / "scenario.toml")
        (folder / "ledger.sqlite").unlink(missing_ok=True)
        return self._leave(scenario, folder, show, "completed")

    def _leave(
        self, scenario: Scenario, out: Path, show: Callable[[dict[str, Any]], None], status: str
    ) -> running.Run:
        show({"event": "evaluated", "loss": 1.0, "accuracy": None, "round": 0})
        with closing(self._make_folder(out)) as folder:
            folder.scenario(scenario.to_toml())
            folder.clients("a", "b")
            folder.evaluate(2.0, 0.1)
            for number in range(scenario.server.rounds):
                folder.round({"a": "folded", "b": "folded"})
                folder.evaluate(1.0, 0.4 + 0.1 * number + 0.01 * scenario.seed)
            folder.end(status)
            folder.commit()
        account = Account(out)
        summary = summarise(account)
        write_summary(out, summary)
        return running.Run(out, summary, account)


@pytest.fixture
def runner(run: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    monkeypatch.chdir(tmp_path)
    Path("plain.toml").write_text(SCENARIO)
    made = Runner(type(run))
    monkeypatch.setattr(running, "run", made.run)
    monkeypatch.setattr(running, "resume", made.resume)
    return made


def compared(**options: Any) -> Comparison:
    return compare("plain.toml", vary=VARY, **{"seeds": 2, "out": "there", **options})


def test_every_run_is_run_once_in_its_folder_and_read_again(runner: Runner) -> None:
    done = compared()
    names = ["rounds=1-seed4", "rounds=2-seed4", "rounds=1-seed5", "rounds=2-seed5"]
    assert runner.calls == [f"run {name}" for name in names]
    assert done.status == "completed", done.runs["detail"].tolist()
    assert done.runs["folder"].tolist() == names
    assert done.runs["server.rounds"].tolist() == [1, 2, 1, 2]
    assert done.runs["accuracy"].tolist() == pytest.approx([0.44, 0.54, 0.45, 0.55])
    assert done.runs["bytes"].tolist() == [4000, 8000, 4000, 8000]
    assert done.runs["rounds_to_target"].dropna().tolist() == [2]
    course = done.courses.query("variant == 'rounds=2' and seed == 5")
    assert course["bytes"].tolist() == [0, 4000, 8000]
    means = done.means.set_index(["variant", "measure"])
    assert means.loc[("rounds=2", "accuracy"), "mean"] == pytest.approx(0.545)
    assert means.loc[("rounds=1", "rounds_to_target"), "n"] == 0
    (difference,) = done.differences.query("measure == 'accuracy'").to_dict("records")
    assert (difference["variant"], difference["n"]) == ("rounds=2", 2)
    assert difference["mean"] == pytest.approx(0.1)


def test_the_files_say_the_same(runner: Runner) -> None:
    done = compared()
    rows = pd.read_csv(done.folder / "comparison.csv")
    assert rows["accuracy"].tolist() == pytest.approx(done.runs["accuracy"].tolist())
    numbers = json.loads((done.folder / "comparison.json").read_text())
    assert numbers["status"] == "completed"
    assert numbers["runs"][0]["rounds_to_target"] is None
    assert len(numbers["means"]) == len(done.means)
    page = (done.folder / "comparison.md").read_text()
    assert "[completed](rounds=1-seed4/report.html)" in page
    assert (done.folder / "comparison.png").stat().st_size > 10_000


def test_the_tables_show_ends_target_and_differences(runner: Runner) -> None:
    text = describe(compared())
    assert text.startswith("plain: 2 variants × 2 seeds, mean ± 95 % confidence interval")
    assert "\nAt the end\n" in text
    assert "\nUntil the target\n" in text
    assert "\nDifference to rounds=1, between runs of the same seed\n" in text
    assert "– (0 of 2)" in text
    assert "2.0 ± – (1 of 2)" in text
    assert "+10.0 ± 0.0 points" in text


def test_one_seed_has_no_interval_and_no_difference(runner: Runner) -> None:
    text = describe(compared(seeds=1))
    assert text.startswith("plain: 2 variants × 1 seed, so without intervals\n")
    assert "44.0 ± – %" in text
    assert "Difference" not in text


def test_a_run_that_fails_is_shown_and_the_others_go_on(runner: Runner) -> None:
    runner.fates = {2: "never started"}
    done = compared()
    assert len(runner.calls) == 4
    assert done.status == "failed"
    assert done.runs["status"].tolist() == ["completed", "failed", "completed", "completed"]
    text = describe(done)
    assert "3 of 4 runs ended well" in text
    assert (
        "rounds=2 seed=4 failed: the nursery?[2J died. The last lines of its log: … no such file\n"
        in text
    )
    assert "\n  rounds=2  1 of 2  " in text


@pytest.mark.parametrize(
    ("fate", "waiting"), [("stopped", 2), ("stopped early", 2), ("interrupted", 3)]
)
def test_stopping_one_stops_all_and_resuming_runs_only_what_is_missing(
    runner: Runner, fate: str, waiting: int
) -> None:
    runner.fates = {2: fate}
    stopped = compared()
    assert len(runner.calls) == 2
    assert stopped.status == "stopped"
    assert stopped.runs["status"].tolist()[2:] == ["not run", "not run"]
    assert f"\n{waiting} of 4 runs did not begin\n" in describe(stopped)
    Path("plain.toml").unlink()
    done = resume_comparison("there")
    began = "resume" if fate == "stopped" else "run"
    assert runner.calls[2:] == [
        f"{began} rounds=2-seed4", "run rounds=1-seed5", "run rounds=2-seed5"
    ]  # fmt: skip
    assert done.status == "completed"


def test_resuming_what_has_ended_runs_nothing_and_writes_the_tables_anew(runner: Runner) -> None:
    compared()
    Path("there/comparison.md").unlink()
    assert resume_comparison("there").status == "completed"
    assert len(runner.calls) == 4
    assert Path("there/comparison.md").exists()


def test_a_report_writes_tables_and_figures_anew_without_a_run(runner: Runner) -> None:
    runner.fates = {2: "never started"}
    before = compared()
    calls, text = list(runner.calls), describe(before)
    for path in before.folder.glob("comparison.[mcp]*"):
        path.unlink()
    done = CliRunner().invoke(main, ["report", "there", "--figures", "svg"])
    assert (done.exit_code, done.output) == (0, "there/comparison.md\n"), done.output
    assert runner.calls == calls
    again = report_comparison("there", figures="pdf")
    assert (again.status, describe(again)) == (before.status, text)
    names = {path.name for path in before.folder.glob("comparison.*")}
    assert names == {f"comparison.{kind}" for kind in ("json", "csv", "md", "png", "svg", "pdf")}


def test_a_report_of_a_comparison_that_was_stopped_says_so(runner: Runner) -> None:
    runner.fates = {2: "stopped"}
    compared()
    assert report_comparison("there").status == "stopped"


def test_a_folder_of_something_else_has_no_comparison_to_report(runner: Runner) -> None:
    with pytest.raises(ConfigError, match="is not a comparison"):
        report_comparison("nowhere")


def test_the_target_of_every_variant_is_in_the_figure(runner: Runner) -> None:
    plan = make_plan(Path("plain.toml"), {"server.target.accuracy": [0.5, 0.6]}, seeds=2)
    assert targets_of(plan) == {"accuracy": [0.5, 0.6]}


def test_without_a_run_that_ended_there_are_no_tables(runner: Runner) -> None:
    runner.fates = {1: "never started", 2: "failed"}
    done = compared(seeds=1)
    text = describe(done)
    assert done.status == "failed"
    assert "0 of 2 runs ended well" in text
    assert "At the end" not in text
    assert "rounds=2 seed=4 failed" in text


def test_each_run_is_watched_under_its_title(runner: Runner) -> None:
    seen: list[str] = []

    @contextmanager
    def watch(title: str) -> Iterator[Callable[[dict[str, Any]], None]]:
        seen.append(title)
        yield lambda event: seen.append(event["event"])

    compared(seeds=1, watch=watch)
    assert seen == ["[1/2] rounds=1 seed=4", "evaluated", "[2/2] rounds=2 seed=4", "evaluated"]


def test_the_default_folder_is_named_after_scenario_and_time(runner: Runner) -> None:
    done = compared(seeds=1, out=None)
    assert done.folder.parent == Path("runs").resolve()
    assert done.folder.name.startswith("plain-compare-")
    assert not Path("runs/latest").exists()


def test_a_folder_that_holds_something_is_left_as_it_was(runner: Runner) -> None:
    Path("there").mkdir()
    Path("there/mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="muster compare --resume there"):
        compared()
    assert [path.name for path in Path("there").iterdir()] == ["mine.txt"]


def test_only_a_comparison_that_nobody_runs_can_be_resumed(runner: Runner) -> None:
    with pytest.raises(ConfigError, match=r"nowhere is not a comparison: it has no plan\.json"):
        resume_comparison("nowhere")
    compared(seeds=1)
    with open("there/plan.json") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another muster is at work"):
            resume_comparison("there")
