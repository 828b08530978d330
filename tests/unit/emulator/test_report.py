"""The report of a run: one page that opens anywhere, and figures that say what they show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from tests.unit.emulator.charts import charts_of, findings

from muster.common.errors import LedgerError
from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline, summarise, write_summary
from muster.emulator.report import chart, page, sections, write_report
from muster.emulator.report.figures import FIGURES
from muster.emulator.report.page import went_wrong
from muster.emulator.report.section import ReportSection, ReportTable

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

HOSTILE = '<script>alert("x")</script> $\\frac{ \x1b[2J 鬼'


class Page(HTMLParser):
    """What a browser would find in a page: its tags with their attributes, its text, and what is in
    its scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)
        elif self.cdata_elem != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def written(drawn: Callable[..., Path]) -> Path:
    """The report of ten phones and five tablets over fifty rounds."""
    folder = drawn({"phones": 10, "tablets": 5}, rounds=50)
    with Account(folder) as account:
        write_summary(folder, summarise(account) | {"model_sha256": "abc123"})
    return write_report(folder)


def test_the_page_refers_to_nothing_outside_itself(written: Path) -> None:
    found = Page(written)
    assert {"iframe", "object"}.isdisjoint(tag for tag, _ in found.tags)
    for _, attributes in found.tags:
        for name in ("src", "href"):
            reference = attributes.get(name) or "#"
            assert reference.startswith(("#", "data:image/"))
    source = written.read_text(encoding="utf-8")
    addresses = set(re.findall(r"\w+://[^\s\"')]+", source))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name that is written like an address
    assert "url(" not in source
    [policy] = [meta["content"] for meta in found.all("meta") if "http-equiv" in meta]
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; script-src 'sha256-")
    assert "connect-src" not in policy


def test_every_place_for_a_figure_has_its_charts_inside_the_page(written: Path) -> None:
    found = Page(written)
    places = [box["data-figure"] for box in found.all("div") if "data-figure" in box]
    assert places == ["learning", "groups", "participation", "time", "bytes"]
    figures = json.loads(found.scripts[0])["figures"]
    assert list(figures) == places
    assert all(chart["title"] for charts in figures.values() for chart in charts)
    assert not found.all("img")
    assert not (written.parent / "figures").exists()


def test_links_lead_to_sections_of_the_page(written: Path) -> None:
    found = Page(written)
    places = {f"#{attributes['id']}" for _, attributes in found.tags if "id" in attributes}
    assert {link["href"] for link in found.all("a")} < places


def test_the_navigation_wraps_between_links_and_never_inside_one(written: Path) -> None:
    style_sheet = written.read_text(encoding="utf-8").partition("</style>")[0]
    rules = dict(re.findall(r"^\.sections (nav|nav a) \{(.*?)\}", style_sheet, re.MULTILINE))
    assert "flex-wrap: wrap" in rules["nav"]
    assert "white-space: nowrap" in rules["nav a"]


def test_the_page_has_the_numbers_the_scenario_and_the_fingerprint(written: Path) -> None:
    text = Page(written).text
    for expected in (
        "small-world", "completed", "seed = 7", "AVX2", "abc123", "phones-0000", "late", "deadline",
        "The first and last 20 of 50", "ledger.sqlite",
    ):  # fmt: skip
        assert expected in text


def test_sentences_in_tables_have_room_on_a_narrow_screen(tmp_path: Path) -> None:
    table = ReportTable(["what", "why"], [["a", "it ended before anything was ready"]], words=2)
    path = tmp_path / "page.html"
    page.write_page(path, "tiny", "completed", [ReportSection("Ends", table=table)], {})
    text = path.read_text(encoding="utf-8")
    assert '<td class="word">a</td>' in text
    assert '<td class="word long">it ended before anything was ready</td>' in text


def test_the_same_run_gives_the_same_page(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded", "b": "late"})
    before = write_report(run.commit()).read_bytes()
    assert write_report(run.path).read_bytes() == before


@pytest.mark.slow
def test_hostile_names_are_shown_and_never_obeyed(run: RunFolder) -> None:
    run.scenario(
        f"name = '''{HOSTILE.replace(chr(27), '')}'''\n# <img src=x>\n"
        "[clock]\nkind = 'rounds'\n[server.mode]\nkind = 'opportunistic'\nmax_staleness = 10\n"
        f"[[groups]]\nname = {json.dumps(HOSTILE)}"
    )
    z = json.dumps({HOSTILE: 1.0, f"os={HOSTILE}": 1.0, "os=<b>": 0.0})
    run.clients(HOSTILE, "b", group='"><img src=x onerror=alert(1)>', z=z)
    run.clients("c", "d", "e", "f", "g", "h", "i", "j", group=HOSTILE)
    run.round(
        {HOSTILE: f"refused: {HOSTILE}", "b": "folded"},
        declined={"c": HOSTILE},
        batteries={HOSTILE: 0.5, "b": 0.5, "c": 0.5},
        x={"b": {HOSTILE: 0.5}},
        times=(0, 1),
    )
    run.estimate(coverage={"share": 1.0, "updates": 1.0, "largest_psi": 1.0})
    run.evaluate(2.0)
    run.measure({HOSTILE: (5, 3.0, None), "_b": (5, 4.0, None)}, {})
    run.round(
        {HOSTILE: "folded", "b": "folded", "d": f"late: {HOSTILE}"},
        batteries={HOSTILE: 0.7},
        times=(1, 2),
        sent={HOSTILE: {"weight": 7.0, "train_s": 9.0}},
    )
    run.add(
        "valuations", round=2, client=HOSTILE, received_accuracy=0.5, own_accuracy=0.4, gains=1,
        forced=0, a=0.1, b=0.2, c=0.3, threshold=0.4,
    )  # fmt: skip
    run.estimate(
        shares={HOSTILE: 0.5, "b": 0.25},
        participation={HOSTILE: 1.0},
        calibration={"method": HOSTILE, HOSTILE: HOSTILE},
        coverage={"share": 0.5, "updates": 2.0, "largest_psi": 3.0, HOSTILE: HOSTILE},
        **{HOSTILE: {HOSTILE: HOSTILE}},
    )
    run.journal({"event": "warned", "round": 1, "by": HOSTILE, "warning": HOSTILE})
    run.plan(
        [
            (1, HOSTILE, 8, 8, 1.0),
            (2, HOSTILE, 8, 8, 3.0),
            (1, '"><img src=x onerror=alert(1)>', 2, 2, 1.0),
        ]
    )
    run.evaluate(1.0)
    run.measure(
        {HOSTILE: (5, 1.0, None), "_b": (5, 2.0, None)},
        {HOSTILE: (5, 1.0, None), "b": (5, 2.0, None)},
    )
    run.transfer(HOSTILE, "up", 0.0, 1.0, 1.0)
    run.transfer("b", "up", 0.5, 1.0, 1.0)
    run.traffic(HOSTILE, (1000, 1000, 2000, None), (1000, 1000, 2000, None))
    run.fault("<b>", HOSTILE, detail=HOSTILE)
    run.end("failed", HOSTILE)
    found = Page(write_report(run.commit()))
    data, script = found.scripts
    inside = json.loads(data)
    assert inside["run"]["frame"]["sections"]["setup"]["groups"][0]["name"] == HOSTILE
    assert set(inside["figures"]) == set(FIGURES)
    write_report(run.path, "png")
    assert {path.stem for path in (run.path / "figures").iterdir()} == set(FIGURES)
    assert "alert" not in script
    assert len(found.all("script")) == 2
    assert len(found.all("b")) == 2  # those of the finding, and of what went wrong
    assert not found.all("img")
    assert '<script>alert("x")</script>' in found.text
    assert '"><img src=x onerror=alert(1)>' in found.text
    assert "\x1b" not in found.text


def test_a_run_that_has_only_begun_has_a_report(run: RunFolder) -> None:
    (run.path / "scenario.toml").unlink()
    text = Page(write_report(run.commit())).text
    assert "unfinished" in text
    assert "–" in text


def test_a_failed_run_of_one_empty_round_has_a_report(run: RunFolder) -> None:
    run.clients("a")
    run.round({}, declined={"a": "offline"})
    run.journal({"event": "died", "process": "server", "status": -9})
    run.end("failed", "server died")
    text = Page(write_report(run.commit())).text
    for expected in ("failed", "server died", "offline", "Disturbances", "empty"):
        assert expected in text


def test_groups_have_a_section_only_where_they_were_measured(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    run.evaluate(1.0, 0.5)
    assert "Groups and devices" not in Page(write_report(run.commit())).text
    run.measure({"phones": (1234, 1.5, 0.25)}, {})
    text = Page(write_report(run.commit())).text
    assert "Groups and devices" in text
    for expected in ("phones", "1,234", "1.5", "25.0 %"):
        assert expected in text


Parts = dict[str, tuple[int, float | None, float | None]]


@pytest.mark.parametrize(
    ("groups", "devices", "titles"),
    [
        ({}, {}, []),
        ({"a": (1, 2.0, None)}, {}, ["The only group ended at 2"]),
        ({"a": (1, 2.0, 0.5), "b": (1, 2.0, 0.5)}, {}, ["All 2 groups ended at 50.0 %"]),
        ({"a": (1, 2.0, None), "b": (1, 1.5, None)}, {}, ["2 groups ended between 2 and 1.5"]),
        (
            {"a": (1, None, None)},
            {"a": (1, None, None), "b": (1, None, None)},
            [],
        ),
        ({}, {"a": (1, 2.0, 0.0)}, []),
        ({}, {"a": (1, 0.0, None), "b": (1, None, None)}, ["Devices: median 0, a tenth above inf"]),
    ],
    ids=[
        "nothing",
        "one group",
        "equal groups",
        "losses",
        "diverged",
        "one device",
        "one diverged",
    ],
)
def test_the_figure_of_groups_says_what_it_shows(
    run: RunFolder, groups: Parts, devices: Parts, titles: list[str]
) -> None:
    run.evaluate(1.0)
    run.measure(groups, {})
    run.round({"a": "folded"})
    run.evaluate(1.0)
    run.measure(groups, devices)
    assert findings("groups", run.commit()) == titles


def test_a_single_value_of_groups_and_devices_is_stated_and_not_drawn(run: RunFolder) -> None:
    run.evaluate(1.0, 0.5)
    run.measure({"phones": (1, 2.0, 0.25), "tablets": (1, 1.0, 0.75)}, {"a": (1, 2.0, 0.5)})
    with Account(run.commit()) as account:
        section = sections.groups(account, outline(account))
    assert section is not None
    assert section.figure == ""
    assert section.table is not None
    assert section.points == ["The only device ended at 50.0 % (accuracy)."]


@pytest.mark.slow
def test_a_thousand_clients_have_a_report(drawn: Callable[..., Path]) -> None:
    folder = drawn({"phones": 700, "tablets": 305}, rounds=2, evaluate_every=5)
    text = Page(write_report(folder)).text
    assert "phones-0699" in text
    assert "5 more are in ledger.sqlite" in text


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        write_report(tmp_path)


def test_a_summary_of_before_the_run_went_on_is_not_believed(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as account:
        write_summary(run.path, summarise(account, "failed") | {"model_sha256": "abc123"})
    assert "abc123" in Page(write_report(run.path)).text
    run.round({"a": "folded"})
    text = Page(write_report(run.commit())).text
    assert "abc123" not in text
    assert "unfinished" in text


# --- sections ------------------------------------------------------------------------------------


def rows_of(make: Callable[..., ReportSection | None], folder: Path) -> list[list[str]]:
    with Account(folder) as account:
        section = make(account, outline(account))
    assert section is not None
    return [list(row) for row in section.table.rows] if section.table else []


def test_losses_are_counted_from_the_call_to_the_model(run: RunFolder) -> None:
    run.clients("a", "b", "c", "d")
    run.round({"a": "folded", "b": "late: deadline"}, declined={"c": "offline"}, unanswered=1)
    run.round({"a": "folded", "b": "late: deadline"}, declined={"c": "busy"})
    run.ledger.execute("DELETE FROM contributions WHERE round = 2 AND client = 'a'")
    assert rows_of(sections.losses, run.commit()) == [
        ["late", "deadline", "2", "28.6 %"],
        ["no answer", "", "1", "14.3 %"],
        ["accepted, no update arrived", "", "1", "14.3 %"],
        ["declined", "busy", "1", "14.3 %"],
        ["declined", "offline", "1", "14.3 %"],
    ]


def test_a_run_without_losses_has_no_such_section(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as account:
        assert sections.losses(account, outline(account)) is None


def test_faults_and_deaths_stand_in_the_order_of_time(run: RunFolder) -> None:
    run.fault("crash", "phones-1")
    run.round({}, seconds=3.0)
    run.journal({"event": "died", "process": "phones-1", "status": -9})
    run.round({}, seconds=3.0)
    run.journal({"event": "restarted", "process": "phones-1"})
    assert rows_of(sections.disturbances, run.commit()) == [
        ["0 s", "crash", "phones-1", "applied", ""],
        ["3 s", "died", "phones-1", "", "-9"],
        ["6 s", "restarted", "phones-1", "", ""],
    ]


def test_clients_that_differ_in_their_fingerprint_are_warned_about(run: RunFolder) -> None:
    run.clients("a", fingerprint='{"torch": "2.2", "threads": 1}')
    run.clients("b", fingerprint='{"torch": "2.3", "threads": 1}')
    assert rows_of(sections.fingerprint, run.commit()) == [["2.2", "1"], ["2.3", "1"]]


def test_only_files_that_exist_are_listed(run: RunFolder) -> None:
    names = [name for name, _ in rows_of(sections.files, run.commit())]
    assert names == ["scenario.toml", "ledger.sqlite", "report.html"]


# --- figures -------------------------------------------------------------------------------------


def test_titles_say_what_was_found(run: RunFolder) -> None:
    run.clients("a", "b")
    run.evaluate(2.0, 0.1)
    run.round({"a": "folded", "b": "late"})
    run.round({"a": "folded"}, declined={"b": "offline"}, seconds=4.0)
    run.evaluate(0.5, 0.75)
    folder = run.commit()
    assert findings("learning", folder) == [
        "Loss fell from 2 to 0.5",
        "Accuracy rose from 10.0 % to 75.0 %",
    ]
    assert findings("bytes", folder) == [
        "2.9 KiB went up and 2.9 KiB down; 33.3 % of the upload did not count"
    ]


def test_a_task_without_accuracy_shows_its_own_metric_beside_the_loss(run: RunFolder) -> None:
    run.evaluate(2.0, distance_to_optimum=1.0)
    run.round({})
    folder = run.commit()
    assert findings("learning", folder) == [
        "Loss was 2 after round 0",
        "Distance to optimum was 1 after round 0",
    ]


def test_a_diverged_run_shows_what_was_still_a_number(run: RunFolder) -> None:
    run.clients("a")
    run.evaluate(2.0)
    run.round({"a": "folded"})
    run.evaluate(float("inf"))
    assert findings("learning", run.commit()) == ["Loss was 2 after round 0"]


def test_a_curve_stays_level_through_empty_rounds(run: RunFolder) -> None:
    run.clients("a")
    run.evaluate(2.0)
    run.round({"a": "folded"})
    run.evaluate(1.0)
    run.round({})
    run.round({"a": "folded"})
    run.evaluate(0.5)
    [curve] = charts_of("learning", run.commit())[0].layers
    assert (curve.kind, curve.x, curve.y) == ("steps", [0, 1, 3], [2, 1, 0.5])


def test_a_single_evaluation_and_a_single_round_are_stated_and_not_drawn(run: RunFolder) -> None:
    run.clients("a")
    run.evaluate(2.0, 0.5)
    run.round({"a": "folded"})
    found = Page(write_report(run.commit()))
    assert not any("data-figure" in box for box in found.all("div"))
    assert "Loss was 2 after round 0. Accuracy was 50.0 % after round 0." in found.text
    assert "1000 B went up and 1000 B down." in found.text


def test_figures_are_written_only_on_request(run: RunFolder) -> None:
    run.clients("a", "b")
    for called in ({"a": "folded", "b": "late"}, {"a": "folded"}):
        run.round(called)
    folder = run.commit()
    bare = write_report(folder).read_bytes()
    assert not (folder / "figures").exists()
    assert write_report(folder, "png").read_bytes() == bare
    assert (folder / "figures" / "participation.png").is_file()


def test_a_report_is_written_without_matplotlib(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    folder = run.commit()
    code = (
        "import sys; from pathlib import Path; from muster.emulator.report import write_report; "
        "write_report(Path(sys.argv[1])); sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, folder], timeout=100).returncode == 0


def test_a_figure_that_has_nothing_to_show_any_more_is_removed(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    (run.path / "figures").mkdir()
    (run.path / "figures" / "participation.png").touch()
    (run.path / "figures" / "of-the-user.png").touch()
    write_report(run.commit())
    assert [path.name for path in (run.path / "figures").iterdir()] == ["of-the-user.png"]


def test_drawing_leaves_pyplot_alone(run: RunFolder) -> None:
    before = "matplotlib.pyplot" in sys.modules
    write_report(run.commit(), "png")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_thousands_of_rounds_are_drawn_as_means() -> None:
    rounds = pd.DataFrame({"called": range(1000)}, index=pd.RangeIndex(1, 1001))
    [layer], size = chart.bars(rounds, {"called": "blue"})
    assert size == 4
    assert len(layer.y) == 250
    assert layer.y[-1] == 997.5  # the mean of 996, 997, 998, 999
    assert (layer.x[-1], layer.ends[-1]) == (996.5, 1000.5)


def test_a_level_stands_over_each_round_that_has_a_value() -> None:
    layer = chart.by_round(pd.Series([2.0, 3.0], index=[4, 6]), "blue")
    assert layer.x == [3.5, 4.5, 5.5, 6.5]
    assert layer.y == [2.0, None, 3.0]


def test_a_chart_of_very_many_rounds_is_small() -> None:
    values = pd.Series(np.arange(100_000.0), index=np.arange(1, 100_001))
    levels, steps = chart.by_round(values, "blue"), chart.course(values, "blue")
    assert len(levels.y) == chart.MOST_POINTS
    assert levels.y[0] == 49.5  # the mean of 0 to 99
    assert len(steps.y) == chart.MOST_POINTS
    assert steps.y[-1] == 99_999.0  # the newest is kept


# --- what went wrong ------------------------------------------------------------------------------


def wrong(folder: Path) -> ReportSection:
    with Account(folder) as account:
        return went_wrong(account, outline(account))


def test_nothing_went_wrong_if_every_update_counted(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    assert wrong(run.commit()).text == "Nothing: every call led to an update that counted."


def test_spare_updates_went_not_wrong(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded", "b": "dropped: goal reached"})
    found = wrong(run.commit())
    assert not found.points
    assert found.text.endswith("counted; some came when the goal was reached without them.")


def test_a_warning_of_the_supervisor_is_not_the_aggregators(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    run.journal({"event": "warned", "round": 0, "by": "muster", "warning": "1 user is left out"})
    folder = run.commit()
    assert wrong(folder).points == ["muster warned: 1 user is left out."]
    assert "Weights" not in Page(write_report(folder)).text


def test_the_first_screen_says_what_went_wrong(run: RunFolder) -> None:
    run.clients("a", "b", "c")
    run.round({"a": "folded", "b": "late: deadline"}, declined={"c": "busy"})
    run.round({}, declined={"a": "busy", "b": "busy"})
    run.journal({"event": "died", "process": "b", "status": -9})
    run.journal({"event": "warned", "round": 1, "by": "importance", "warning": "a is rare"})
    folder = run.commit()
    assert wrong(folder).points == [
        "Processes died, 1 in all: b.",
        "80.0 % of the 5 calls led to no update that counted: 3 declined, busy; 1 late, deadline.",
        "1 of 2 rounds made no version.",
        "The aggregator warned: a is rare.",
    ]
    assert "1 of 2 rounds made no version." in Page(write_report(folder)).text


# --- docs/results.md -----------------------------------------------------------------------------

RESULTS = (Path(__file__).parents[3] / "docs/results.md").read_text(encoding="utf-8")


def test_the_documentation_names_every_file_column_and_key(run: RunFolder) -> None:
    run.scenario("[server.target]\nloss = 1.0")
    with Account(run.commit()) as account:
        tables = [account.rounds, account.answers, account.contributions, account.clients,
                  account.evaluations, account.group_evaluations, account.device_evaluations,
                  account.transfers, account.estimates, account.warnings,
                  account.faults]  # fmt: skip
        names = {*sections.FILES, *outline(account), *(str(name) for t in tables for name in t)}
    explained = set(re.findall(r"`([\w.]+)", RESULTS))
    assert names <= explained, f"not in docs/results.md: {sorted(names - explained)}"


def test_the_examples_of_the_documentation_run(
    written: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/latest").symlink_to(written.parent)
    monkeypatch.chdir(tmp_path)
    for example in re.findall(r"```python\n(.*?)```", RESULTS, re.DOTALL):
        if re.search(r"\b(run|compare)\(\"", example):  # runs of its own: tests/system
            continue
        exec(compile(example, "docs/results.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "phones-0000" in shown
    assert "folded" in shown
