"""The plan of a league, its table, and the check of a published one; no run is played."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from muster.common.errors import ConfigError
from muster.emulator.records.intervals import interval
from muster.laboratory.league import check, publishing
from muster.laboratory.league.page import markdown_of, matrix_of, write_pages
from muster.laboratory.league.plan import BASELINE, RULES, SCENARIOS, LeaguePlan, make_plan
from muster.laboratory.league.standings import League, standings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TINY = """# Two devices.
name = "tiny"
[task]
name = "digits"
model = "softmax"
[training]
learning_rate = 0.1
[server]
rounds = 2
{server}
[[groups]]
name = "dev"
count = 2
{group}
"""

MODE = 'mode = { kind = "buffered", k = 2, concurrency = 2 }'
SPEED = "device = { examples_per_s = 10 }"


def scenario(folder: Path, name: str = "tiny", server: str = "", group: str = "") -> str:
    path = folder / f"{name}.toml"
    path.write_text(TINY.format(server=server, group=group))
    return str(path)


def test_the_scenarios_of_the_league_are_played_with_the_baseline_and_say_what_they_are() -> None:
    plan = make_plan()
    assert len(plan.scenarios) == 12
    assert plan.rules == list(RULES)
    for name, comparison in plan.scenarios.items():
        assert comparison.variants[0] == BASELINE
        assert comparison.runs[0].scenario.name == name
        assert plan.about[name].endswith(".")
    assert [cell.folder for cell in plan.cells][:2] == [
        "battery/fedavg-seed201",
        "battery/fedadam-seed201",
    ]


def test_a_league_is_planned_by_names_files_and_tables(tmp_path: Path) -> None:
    (tmp_path / "mine_of_league.py").write_text(
        "from muster.server.aggregators import Aggregator\n"
        "class Even(Aggregator):\n"
        "    def weight(self, contribution, state):\n"
        "        return 1.0\n"
    )
    rules = ['mifa,{kind="trimmed-mean",byzantine=1}', f"{tmp_path}/mine_of_league.py:Even", "mifa"]
    plan = make_plan(rules, [f"outage, {scenario(tmp_path)}"], seeds=2, first_seed=7)
    assert plan.rules == ["fedavg", "mifa", "trimmed-mean(byzantine=1)", "mine_of_league:Even"]
    assert list(plan.scenarios) == ["outage", "tiny"]
    assert {cell.run.seed for cell in plan.cells} == {7, 8}
    assert plan.cells[-1].scenario.modules == str(tmp_path)
    again = LeaguePlan.from_json(plan.to_json(), "plan.json")
    assert again.to_json() == plan.to_json()
    assert [cell.title for cell in again.cells] == [cell.title for cell in plan.cells]


def test_a_rule_that_a_scenario_excludes_is_a_cell_with_the_reason() -> None:
    plan = make_plan(["scaffold"], ["late", "outage"], seeds=1)
    assert list(plan.refused) == [("late", "scaffold")]
    assert "control variate" in plan.refused["late", "scaffold"]
    assert "mistake" not in plan.refused["late", "scaffold"]
    assert [cell.run.variant for cell in plan.cells] == ["fedavg", "fedavg", "scaffold"]


@pytest.mark.parametrize(
    ("rules", "scenarios", "seeds", "why"),
    [
        (["fedavgg"], ["outage"], 1, r"there is no aggregator called 'fedavgg' \(did you mean"),
        (["nowhere.py:Rule"], ["outage"], 1, r"--rules nowhere.py:Rule: there is no file"),
        ([], ["outages"], 1, r"there is no 'outages'; expected a file, or one of battery,"),
        ([], ["outage,outage"], 1, r"outage comes twice"),
        (["mifa"], ["outage"], 0, r"--seeds: expected at least 1, found 0"),
        (['{kind="mifa",rat=1}'], ["outage"], 1, r"rat"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    rules: list[str], scenarios: list[str], seeds: int, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        make_plan(rules, scenarios, seeds)


def test_a_scenario_that_needs_real_processes_is_refused(tmp_path: Path) -> None:
    path = scenario(tmp_path, server="deadline_s = 5.0", group='[clock]\nkind = "wall"')
    with pytest.raises(ConfigError, match="must be in lockstep"):
        make_plan(["mifa"], [path], 1)


def test_a_plan_that_is_none_is_refused() -> None:
    for text in ("{}", "[]", "not JSON"):
        with pytest.raises(ConfigError, match=r"expected the plan that `muster league` wrote"):
            LeaguePlan.from_json(text, "plan.json")


# --- the table -----------------------------------------------------------------------------------


def leave(run: Path, accuracy: float, status: str = "completed") -> None:
    """Leave what the table reads of a run."""
    run.mkdir(parents=True)
    groups = {"a": {"accuracy": accuracy}, "b": {"accuracy": accuracy / 2}}
    summary = {
        "status": status,
        "rounds": 2,
        "final": {"accuracy": accuracy, "loss": 1.0, "groups": groups},
        "bytes_up": 1024 * 1024,
        "bytes_down": 0,
        "scenario_s": 7200.0,
        "model_sha256": hashlib.sha256(str(accuracy).encode()).hexdigest(),
        "fingerprint": {"torch": "2"},
    }
    (run / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def played(tmp_path: Path) -> League:
    """A league of which a rule is refused, another is better than the baseline, and a run of
    another has failed."""
    path = scenario(tmp_path, server=MODE, group=SPEED)
    plan = make_plan(["fedbuff", "scaffold", "fedavgm"], [path], seeds=3, first_seed=1)
    for number, baseline in enumerate((0.5, 0.6, 0.7), 1):
        leave(tmp_path / f"tiny/fedavg-seed{number}", baseline)
        leave(tmp_path / f"tiny/fedbuff-seed{number}", baseline + 0.1 + number / 1000)
    leave(tmp_path / "tiny/fedavgm-seed1", 0.5)
    return standings_of(tmp_path, plan, {"tiny fedavgm seed=2": "the disk | is <full>"})


def test_differences_are_between_runs_of_the_same_seed(played: League) -> None:
    found = {standing.rule: standing for standing in played.standings}
    better = found["fedbuff"]
    assert better.difference.mean == pytest.approx(0.102)
    assert better.difference.half == pytest.approx(interval([0.101, 0.102, 0.103]).half)
    assert better.accuracy.half > 10 * better.difference.half
    assert better.worst.mean == pytest.approx(0.351)
    assert better.hours.mean == 2.0
    assert found["scaffold"].runs == 0
    assert found["fedavgm"].why == "the disk | is <full>"
    assert found["fedavgm"].accuracy.n == 1
    assert played.status == "stopped"  # the third run of fedavgm was not played
    assert matrix_of(played).rows == [
        ["fedavg", "60.0 %"],
        ["fedbuff", "**+10.2 ± 0.2**"],
        ["scaffold", "refused"],
        ["fedavgm", "+0.0"],
    ]


def test_the_page_escapes_what_it_shows_and_runs_its_own_script_only(played: League) -> None:
    write_pages(played)
    page = (played.folder / "league.html").read_text()
    assert "the disk | is &lt;full&gt;" in page
    script = re.findall(r"<script>(.*?)</script>", page, re.S)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert 'href="tiny/fedbuff-seed1/scenario.toml"' in page
    rows = check.rows_of(played.folder / "league.csv")
    rules = [row["rule"] for row in rows]
    assert rules == ["fedavg", "fedbuff", "fedavgm", *["fedavg", "fedbuff"] * 2]
    text = (played.folder / "league.md").read_text()
    assert "([tiny.toml](tiny/fedavg-seed1/scenario.toml))" in text
    assert "- fedavgm: the disk | is <full>" in text


def test_a_published_page_names_its_fingerprint(played: League, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(markdown_of(played, str, f"Fingerprint: `{json.dumps(played.fingerprint)}`"))
    assert publishing.fingerprint_in(page) == {"torch": "2"}
    page.write_text("# Another page")
    assert publishing.fingerprint_in(page) is None


# --- the check -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "same_machine", "why"),
    [
        ({}, True, ""),
        ({"model": "0" * 16}, True, "expected 0000000000000000, found "),
        ({"model": "0" * 16}, False, ""),
        ({"accuracy": "0.6"}, False, "expected 0.6, found 0.5"),
    ],
)
def test_a_run_that_was_played_again_is_compared_with_its_row(
    tmp_path: Path, changed: Mapping[str, str], same_machine: bool, why: str
) -> None:
    leave(tmp_path / "run", 0.5)
    model = hashlib.sha256(b"0.5").hexdigest()[:16]
    row = {"model": model, "accuracy": "0.5", **changed}
    assert check.differs(row, tmp_path / "run", same_machine).startswith(why)
    assert bool(check.differs(row, tmp_path / "run", same_machine)) is bool(why)
    assert check.differs(row, tmp_path / "nothing", True)


def test_a_check_plans_the_runs_of_its_rows_anew(tmp_path: Path) -> None:
    rows = [{"scenario": "late", "rule": "mifa", "seed": "104", "model": "x", "accuracy": "1"}]
    (cell,) = check.cells_of(check.drawn(rows, 0.1, 1))
    assert cell.title == "late mifa seed=104"
    assert cell.scenario.seed == 104
    with pytest.raises(ConfigError, match="expected a table of a league"):
        check.rows_of(tmp_path / "nothing.csv")
    (tmp_path / "empty.csv").write_text("scenario,rule,seed,model\n")
    with pytest.raises(ConfigError, match="expected runs with models, found none"):
        check.rows_of(tmp_path / "empty.csv")


def test_the_published_table_is_one_of_the_scenarios_that_there_are() -> None:
    page = Path(__file__).parents[2] / "docs/league-table.md"
    rows = check.rows_of(page.with_suffix(".csv"))
    assert {row["scenario"] for row in rows} == {path.stem for path in SCENARIOS.glob("*.toml")}
    assert {row["rule"] for row in rows} == set(RULES)
    assert publishing.fingerprint_in(page)["device"] == "cpu"


def test_the_samples_of_the_page_have_the_numbers_of_the_published_table() -> None:
    """The first five seeds of a league are those of the table."""
    docs = Path(__file__).parents[2] / "docs"
    with (docs / "league-table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    accuracy = {(r["scenario"], r["rule"], r["seed"]): float(r["accuracy"] or 0) for r in rows}
    seeds = sorted({seed for _, _, seed in accuracy})

    def shown(scenario: str, rule: str) -> str:
        """A cell of the sample; empty for a rule that the table has not."""
        if (scenario, rule, seeds[0]) not in accuracy:
            return ""
        own, base = (
            [100 * accuracy[scenario, name, s] for s in seeds] for name in (rule, BASELINE)
        )
        if rule == BASELINE:
            return f"{np.mean(base):.1f} %"
        found = interval(a - b for a, b in zip(own, base, strict=True))
        return f"{found.mean:+.1f} ± {found.half:.1f}"

    compared = 0
    for sample in re.findall(
        r"```text\n(Accuracy; .*?)```", (docs / "league.md").read_text(), re.S
    ):
        head, *lines = [re.split(r"  +", line.strip()) for line in sample.splitlines()[1:]]
        for scenario, *cells in lines:
            for rule, cell in zip(head[1:], cells, strict=True):
                expected = shown(scenario, rule)
                assert cell in (expected, "refused") or not expected, (scenario, rule, expected)
                compared += cell == expected
    assert compared >= 9
