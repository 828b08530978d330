"""Running and judging a study, with run folders that are written and not run."""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.common.clock import WallClock
from muster.common.errors import ConfigError, LedgerError, RunFailed
from muster.emulator.comparison.progress import Pace
from muster.emulator.records.account import Account
from muster.emulator.records.summary import summarise, write_summary
from muster.emulator.runs import running
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.simulation import workers
from muster.simulation.worker_program import run_order
from muster.studies import Options, Results, StudyRun
from muster.studies import results as result_module
from muster.studies.network import by_part, network_table, reasons
from muster.studies.plan import StudyPlan, make_plan, sizes
from muster.studies.running import read_plan

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

TESTS = Path(__file__).parents[2]


class Runner:
    """Stands in for `running`: writes what a run of the scenario would leave.

    The loss is 10 / steps, plus a little that hangs on the seed.

    Attributes:
        fates: number of the call, from 1, to what happens then instead of "completed".
        calls: "run" or "resume" and the folder's name, in order.
    """

    def __init__(self, make_folder: Callable[[Path], RunFolder]) -> None:
        self._make_folder = make_folder
        self.fates: dict[int, str] = {}
        self.calls: list[str] = []

    def run(self, scenario: Scenario, *, out: Path, **options: Any) -> running.Run:
        self.calls.append(f"run {out.name}")
        assert options["report"] is False
        fate = self.fates.get(len(self.calls), "completed")
        if fate == "interrupted":
            raise KeyboardInterrupt
        if fate == "never started":
            raise RunFailed("the nursery\x1b[2J did not come up\nlast lines: …")
        if fate == "stopped early":
            raise RunFailed("stopped before the run began")
        return self._leave(scenario, out, fate)

    def resume(self, folder: Path, **options: Any) -> running.Run:
        self.calls.append(f"resume {folder.name}")
        (folder / "ledger.sqlite").unlink(missing_ok=True)
        return self._leave(read_scenario(folder / "scenario.toml"), folder, "completed")

    def _leave(self, scenario: Scenario, out: Path, status: str) -> running.Run:
        steps = scenario.training.local_steps
        assert steps is not None
        with closing(self._make_folder(out)) as folder:
            folder.scenario(scenario.to_toml())
            folder.clients("a", "b", "c")
            folder.evaluate(20.0, distance=4.0)
            for number in range(1, 4):
                fate, busy = "folded", {"c": "busy"}
                if number == 2:
                    fate, busy = "late: deadline", {}
                folder.round({"a": "folded", "b": fate}, declined=busy)
                loss = 10 / steps + 0.01 * scenario.seed + (3 - number)
                folder.evaluate(loss, distance=float(3 - number))
            folder.end(status)
            folder.commit()
        account = Account(out)
        summary = summarise(account)
        write_summary(out, summary)
        return running.Run(out, summary, account)


@pytest.fixture
def runner(run: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TESTS))
    made = Runner(type(run))
    monkeypatch.setattr(running, "run", made.run)
    monkeypatch.setattr(running, "resume", made.resume)
    return made


def muster(*arguments: str, study: str = "Tiny", out: str = "there") -> Result:
    """`muster study`, in the folder `there`."""
    return CliRunner().invoke(
        main, ["study", f"tiny_study:{study}", "--seeds", "2", "--out", out, *arguments]
    )


def resumed(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["study", "--resume", "there", *arguments])


def rejudged_by(study: str) -> None:
    """Let another study judge the runs in `there`."""
    plan = Path("there/plan.json")
    plan.write_text(plan.read_text().replace("tiny_study:Tiny", f"tiny_study:{study}"))


# --- from the plan to the claims -----------------------------------------------------------------


def test_every_run_is_run_once_in_its_folder_and_the_claims_are_judged(runner: Runner) -> None:
    done = muster()
    assert done.exit_code == 0, done.output
    names = [f"A-sgd-steps={steps}-seed-{seed}" for seed in (101, 102) for steps in (1, 8)]
    assert runner.calls == [f"run {name}" for name in names]
    (claim,) = json.loads(Path("there/claims.json").read_text())
    assert claim["measured"] == pytest.approx(10 - 10 / 8)
    assert claim["holds"] is True
    assert claim["seeds"] == [101, 102]
    table = pd.read_csv("there/losses.csv")
    assert table["1"].tolist() == pytest.approx([11.01, 11.02])
    for file in ("figures/losses.png", "study.html", "study.md", "network.csv", "plan.json"):
        assert Path("there", file).stat().st_size > 100


def test_what_will_be_run_is_said_and_every_run_has_a_line(runner: Runner) -> None:
    said = muster().stderr.splitlines()
    assert said[0] == (
        "tiny: more work in a round learns more (Nobody, Nothing in Particular, 2020)"
    )
    assert said[1].split() == "part runs devices rounds seeds minutes the paper has".split()
    assert said[2].split() == "A 4 3 3 101-102 0.3 1,000 devices".split()
    assert said[3:5] == ["4 runs, about 16 s on two cores", "Without data it does as well."]
    assert said[5].startswith("[1/4] A sgd steps=1 seed 101, ")
    assert "; about " in said[5]
    assert said[-2].startswith("[4/4] A sgd steps=8 seed 102, ")
    assert "left" not in said[-2]
    assert said[-1] == "judging"


def test_a_claim_is_printed_with_its_numbers_and_the_reason_for_it(runner: Runner) -> None:
    said = muster("--quiet")
    assert said.stderr == ""
    lines = said.stdout.splitlines()
    assert lines[:2] == ["tiny: completed", "1 of 1 claims hold"]
    assert lines[2:6] == [
        "  ✓ eight steps a round learn more than one",
        "      measured 8.75, expected > 0, interval or margin 8.75 to 8.75, seeds 101, 102",
        "      Each step lowers the loss.",
        "Linear regression is not the world.",
    ]
    assert lines[-1] == "  page  there/study.html"


def test_a_claim_that_does_not_hold_fails_the_study(runner: Runner) -> None:
    done = muster(study="Wrong")
    assert done.exit_code == 1
    assert "tiny: completed\n0 of 1 claims hold" in done.stdout
    assert "✗ one step a round learns more than eight" in done.stdout
    (claim,) = json.loads(Path("there/claims.json").read_text())
    assert claim["holds"] is False


def test_the_page_says_what_was_claimed_what_was_lost_and_what_is_there(runner: Runner) -> None:
    muster()
    page, text = Path("there/study.html").read_text(), Path("there/study.md").read_text()
    assert page.count('src="data:image/png;base64,') == 1
    assert 'alt="Many steps learn more"' in page
    assert "http" not in page.partition("</head>")[2]
    for words in (
        "eight steps a round learn more than one",
        "Linear regression is not the world.",
        "Without data it does as well.",
        "late (deadline)",
        "What real networking added",
        "1,000 devices",
        "losses.csv",
    ):
        assert words in page
        assert words in text
    assert "![Many steps learn more](figures/losses.png)" in text


# --- failures ------------------------------------------------------------------------------------


def test_a_run_that_fails_fails_the_study_and_the_others_go_on(runner: Runner) -> None:
    runner.fates = {2: "never started"}
    done = muster()
    assert done.exit_code == 1
    assert len(runner.calls) == 4
    assert "  A sgd steps=8 seed 101: the nursery?[2J did not come up\n" in done.stdout
    assert "Resume it with: muster study --resume there" in done.stderr
    assert "[2/4] A sgd steps=8 seed 101, failed (the nursery?[2J did not come up), " in done.stderr
    (claim,) = json.loads(Path("there/claims.json").read_text())
    assert claim["holds"] is False
    assert claim["measured"] == "no finite value with seed 101 (nan)"
    rows = pd.read_csv("there/network.csv")
    assert rows["status"].tolist() == ["completed", "not run", "completed", "completed"]
    assert "Runs without a result" in Path("there/study.html").read_text()


def test_a_study_that_needs_a_run_that_failed_is_not_judged_and_says_so(runner: Runner) -> None:
    runner.fates = {4: "never started"}
    done = muster(study="Needy")
    assert done.exit_code == 1
    assert "The claims could not be judged. A sgd steps=8 seed 102: the nursery" in done.stdout
    assert json.loads(Path("there/claims.json").read_text()) == []


def test_a_run_that_diverged_has_ended(runner: Runner) -> None:
    runner.fates = {1: "diverged"}
    done = muster()
    assert done.exit_code == 0, done.output
    assert "[1/4] A sgd steps=1 seed 101, diverged, " in done.stderr


# --- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["stopped", "stopped early", "interrupted"])
def test_stopping_one_stops_all_and_resuming_runs_only_what_is_missing(
    runner: Runner, fate: str
) -> None:
    runner.fates = {2: fate}
    stopped = muster()
    assert stopped.exit_code == 1
    assert len(runner.calls) == 2
    assert "tiny: stopped\n" in stopped.stdout
    assert "Resume it with: muster study --resume there" in stopped.stderr
    assert not Path("there/claims.json").exists()
    done = resumed()
    assert done.exit_code == 0, done.output
    began = "resume" if fate == "stopped" else "run"
    assert runner.calls[2:] == [
        f"{began} A-sgd-steps=8-seed-101",
        "run A-sgd-steps=1-seed-102",
        "run A-sgd-steps=8-seed-102",
    ]
    assert "[2/4] A sgd steps=8 seed 101, " in done.stderr


def test_resuming_what_has_ended_runs_nothing_and_judges_anew(runner: Runner) -> None:
    muster()
    rejudged_by("Wrong")
    done = resumed()
    assert done.exit_code == 1
    assert len(runner.calls) == 4
    assert "0 of 1 claims hold" in done.stdout


def test_a_study_goes_on_as_it_began(runner: Runner) -> None:
    muster()
    for flag in (("--quick",), ("--seed", "0"), ("--seeds", "2"), ("--out", "x"), ("--data", "x"),
                 ("--backend", "processes"), ("tiny_study:Tiny",)):  # fmt: skip
        refused = resumed(*flag)
        assert refused.exit_code == 2
        assert "--resume continues the study as it began" in refused.stderr


def test_only_a_study_that_nobody_runs_can_be_resumed(runner: Runner) -> None:
    refused = resumed()
    assert refused.exit_code == 2
    assert "there is not a study: it has no plan.json" in refused.stderr
    muster()
    with open("there/plan.json") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another muster is at work" in resumed().stderr
    Path("there/plan.json").write_text("{}")
    assert "expected the plan that `muster study` wrote" in resumed().stderr


# --- what is refused -----------------------------------------------------------------------------


def test_a_wrong_name_lists_the_studies_and_makes_nothing(runner: Runner) -> None:
    refused = CliRunner().invoke(main, ["study", "nothing"])
    assert refused.exit_code == 2
    assert "there is no study called 'nothing'; there are: " in refused.stderr
    assert "module:Class" in refused.stderr
    for kind in ("tiny_study:Tinny", "no_such_module:Tiny", "tiny_study:scenario"):
        assert CliRunner().invoke(main, ["study", kind]).exit_code == 2
    assert CliRunner().invoke(main, ["study"]).exit_code == 2
    assert not Path("runs").exists()


def test_in_memory_runs_must_be_in_lockstep(runner: Runner) -> None:
    done = muster("--backend", "memory", study="OnTheWallClock")
    assert done.exit_code == 2
    assert "a run inside one process must be in lockstep" in done.stderr
    assert not Path("there").exists()
    assert runner.calls == []


def test_a_folder_that_holds_something_is_left_as_it_was(runner: Runner) -> None:
    Path("there").mkdir()
    Path("there/mine.txt").write_text("mine")
    refused = muster()
    assert refused.exit_code == 2
    assert "muster study --resume there" in refused.stderr
    assert [path.name for path in Path("there").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("jobs", ["0", "-1", "100000"])
def test_there_are_as_many_jobs_as_cores_at_most(runner: Runner, jobs: str) -> None:
    refused = muster("--jobs", jobs)
    assert refused.exit_code == 2
    assert f"found {jobs}" in refused.stderr
    assert not Path("there").exists()


def test_without_out_the_folder_is_named_after_study_and_time(runner: Runner) -> None:
    done = CliRunner().invoke(main, ["study", "tiny_study:Tiny", "--quick", "--quiet"])
    assert done.exit_code == 0, done.output
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("study-tiny-")
    assert read_plan(folder).options == Options(quick=True, seed=101, seeds=2)


def test_options_have_defaults_and_the_data_directory_an_absolute_path(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_DATA", "data")
    Path("data").mkdir()
    CliRunner().invoke(main, ["study", "tiny_study:Tiny", "--seed", "7", "--out", "there"])
    options = read_plan(Path("there")).options
    assert options == Options(seed=7, seeds=5, data=str(Path("data").resolve()))
    assert list(options.all_seeds) == [7, 8, 9, 10, 11]


# --- the plan ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("runner")
def test_a_plan_survives_its_file() -> None:
    plan = make_plan("tiny_study:Tiny", Options(seeds=2))
    assert StudyPlan.from_json(plan.to_json(), "plan.json") == plan


@pytest.mark.usefixtures("runner")
def test_a_run_that_is_planned_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = make_plan("tiny_study:Tiny", Options(seeds=1)).study
    runs = [*tiny.runs(Options(seeds=1))] * 2
    monkeypatch.setattr(type(tiny), "runs", lambda self, options: runs)
    with pytest.raises(ConfigError, match="plans A sgd steps=1 seed 101, A sgd steps=8 seed 101"):
        make_plan("tiny_study:Tiny", Options(seeds=1))


@pytest.mark.usefixtures("runner")
def test_sizes_go_by_part() -> None:
    run = make_plan("tiny_study:Tiny", Options(seeds=1)).runs[0].run
    bigger = run.scenario.model_copy(update={"groups": [*run.scenario.groups] * 2, "seed": 5})
    runs = [run, StudyRun("A", {}, bigger, 56.0), StudyRun("B", {}, bigger, 6.0)]
    table = sizes(runs, {"B": "less"})
    assert table.rows == [
        ["A", "2", "3-6", "3", "5-101", "1.0", ""],
        ["B", "1", "6", "3", "5", "0.1", "less"],
    ]


def test_the_time_left_is_put_right_by_what_runs_took() -> None:
    pace = Pace([10, 10, 20], at_once=2)
    assert pace.left_s == 20
    pace.done(10, 30)
    assert pace.left_s == 45
    pace.done(20, 30)
    assert pace.left_s == 10
    pace.done(10, 1)
    assert pace.left_s == 0


# --- results -------------------------------------------------------------------------------------


@pytest.fixture
def found(runner: Runner) -> Results:
    """The results of a study of which the second of four runs failed."""
    runner.fates = {2: "never started"}
    muster()
    plan = read_plan(Path("there"))
    return Results([result_module.Result(run.run, Path("there") / run.folder) for run in plan.runs])


def test_results_are_found_by_labels_part_and_seed(found: Results) -> None:
    assert len(found) == 4
    assert [result.seed for result in found.where(steps=1)] == [101, 102]
    assert found.one(part="A", steps=8, seed=102) is found[3]
    assert len(found.where(colour="red")) == 0
    assert [result.labels["steps"] for result in found[1:3]] == [8, 1]
    with pytest.raises(LookupError, match="found 2"):
        found.one(steps=1)


def test_a_measure_is_taken_of_every_seed_and_the_account_is_closed(found: Results) -> None:
    accounts: list[Account] = []

    def rounds(result: result_module.Result) -> float:
        accounts.append(result.account)
        return len(result.account.rounds)

    measured = found.by_seed(rounds, steps=8)
    assert measured[102] == 3
    assert measured[101] != measured[101]  # not a number
    for account in accounts:
        with pytest.raises(LedgerError, match="closed database"):
            account.clients  # noqa: B018
    with pytest.raises(LookupError, match="several runs with seed 101"):
        found.by_seed(lambda result: 0.0, method="sgd")
    with pytest.raises(LookupError, match="no run was planned"):
        found.by_seed(lambda result: 0.0, steps=3)


def test_a_course_is_what_was_measured_round_by_round(found: Results) -> None:
    result = found[0]
    assert result.course("distance").to_dict() == {0: 4.0, 1: 2.0, 2: 1.0, 3: 0.0}
    assert result.course("loss").iloc[0] == 20
    assert result.course("nothing").isna().all()
    assert result.final("distance") == 0.0
    assert result.tail_mean("distance", share=0.5) == 0.5
    assert result.bytes == 12_000
    assert result.seconds == 6.0
    result.close()


def test_a_run_without_a_result_says_why(found: Results) -> None:
    failed = found[1]
    assert failed.status == "not run"
    for read in ("account", "model", "vector"):
        with pytest.raises(RunFailed, match="A sgd steps=8 seed 101"):
            getattr(failed, read)


def test_traffic_and_losses_are_counted_run_by_run(found: Results) -> None:
    table = network_table(found)
    assert table["lost"].tolist() == [1, 0, 1, 1]
    assert table["bytes_up"].tolist() == [6000, 0, 6000, 6000]
    assert table["lost: late (deadline)"].tolist() == [1, 0, 1, 1]
    assert reasons(table) == {"declined: busy": 6, "lost: late (deadline)": 3}
    assert table["declined"].tolist() == [2, 0, 2, 2]
    total = by_part(table).loc["A"]
    assert (total["runs"], total["calls"], total["folded"]) == (4, 24, 15)
    two = by_part(pd.concat([table, table.assign(part="B")]))
    assert two.index.tolist() == ["A", "B", "all"]
    assert two.loc["all", "calls"] == 48


# --- workers -------------------------------------------------------------------------------------


def test_a_worker_answers_how_the_run_ended(runner: Runner) -> None:
    runner.fates = {2: "never started", 3: "stopped early"}
    plan = make_plan("tiny_study:Tiny", Options(seeds=2))
    answers = [
        run_order(
            {
                "folder": f"there/{planned.folder}",
                "scenario": tomllib.loads(planned.run.scenario.to_toml()),
                "backend": "processes",
            }
        )
        for planned in plan.runs[:3]
    ]
    assert answers[0] == {"status": "completed", "problem": ""}
    assert answers[1]["status"] == "failed"
    assert "the nursery" in answers[1]["problem"]
    assert answers[2]["status"] == "stopped"


def worker_that(does: str) -> Callable[[], Any]:
    """Starts a process that does this with every order, `line`."""
    code = f"import sys\nfor line in sys.stdin:\n    {does}"

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-uc",
            code,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

    return start


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize(
    ("does", "stopped", "statuses", "why"),
    [
        ("""print('{"status": "completed", "problem": ""}')""", False, ["completed"] * 6, ""),
        ("sys.exit(3)", False, ["failed"] * 6, "its worker ended with status 3"),
        ("""print('{"status": "stopped", "problem": "it was"}')""", True, ["stopped"], "it was"),
    ],
)
def test_what_workers_answer_is_told_and_one_that_dies_is_replaced(
    does: str, stopped: bool, statuses: list[str], why: str
) -> None:
    runs = make_plan("tiny_study:Tiny", Options(seeds=3)).runs
    told: list[tuple[str, str, str]] = []
    folder, start = Path("there").resolve(), worker_that(does)
    crew = workers.Workers(folder, "processes", 1, WallClock(), start)
    ended = crew.run(runs, lambda run, status, why, s: told.append((run.folder, status, why)))
    assert ended is stopped
    assert [status for _, status, _ in told] == statuses
    assert [folder for folder, _, _ in told] == [run.folder for run in runs[: len(told)]]
    assert {reason for _, _, reason in told} == {why}
