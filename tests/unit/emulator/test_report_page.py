"""The interactive part of a report: the data inside the file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muster.emulator.live.page_files import coded
from muster.emulator.live.run_reader import MOST_LIVES, run_data
from muster.emulator.report import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.emulator.conftest import RunFolder

TOML = 'name = "small"\nseed = 7\n[server]\nrounds = 3\n[[groups]]\nname = "dev"\ncount = '


def two_devices(run: RunFolder) -> Path:
    run.scenario(f"{TOML}2")
    run.clients("dev-0000", "dev-0001", group="dev")
    run.round({"dev-0000": "folded", "dev-0001": "late: deadline"})
    run.round({"dev-0000": "folded"}, declined={"dev-0001": "busy"})
    run.journal({"event": "warned", "at": 1.0, "warning": "</script><script>alert(1)</script>"})
    return run.commit()


def inside(report: Path) -> Any:
    text = report.read_text(encoding="utf-8")
    [data] = re.findall(r'<script id="run-data" type="application/json">(.*?)</script>', text)
    return json.loads(data)


def test_no_text_of_the_page_has_raw_backticks(run: RunFolder) -> None:
    text = write_report(two_devices(run)).read_text(encoding="utf-8")
    shown = re.sub(r"<(script|style|pre)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert "`" not in shown
    assert "<code>muster run</code> on this file repeats it." in shown


def test_what_a_text_has_besides_code_is_escaped() -> None:
    assert coded("a `<b>` & `c") == "a <code>&lt;b&gt;</code> &amp; `c"


def test_the_data_of_the_page_are_inside_its_file(run: RunFolder) -> None:
    found = inside(write_report(two_devices(run)))["run"]
    assert found["frame"]["sections"]["run"]["state"] == "unfinished"
    assert [row[0] for row in found["frame"]["series"]["rounds"]["rows"]] == [1, 2]
    assert found["frame"]["columns"]["state"] == "oo"
    [line] = found["frame"]["lines"]
    assert line["fields"]["warning"] == "</script><script>alert(1)</script>"
    fates = {
        name: [call["fate"] for call in life["calls"]] for name, life in found["lives"].items()
    }
    assert fates == {"dev-0000": ["folded", "folded"], "dev-0001": ["late", "declined"]}


def test_the_same_run_gives_the_same_interactive_page(run: RunFolder) -> None:
    before = write_report(two_devices(run)).read_bytes()
    assert write_report(run.path).read_bytes() == before


def test_the_page_offers_nothing_that_needs_a_program(run: RunFolder) -> None:
    text = write_report(two_devices(run)).read_text(encoding="utf-8")
    for live_only in ("data-action", "Operator's token", 'id="operator"', "fetch(", "EventSource"):
        assert live_only not in text


def test_a_scenario_without_groups_has_tables_and_charts_but_no_fleet(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    path = write_report(run.commit())
    text = path.read_text(encoding="utf-8")
    assert "has no groups" in text
    assert 'id="fleet"' not in text
    assert 'id="journal"' not in text
    assert inside(path)["run"] is None
    assert "All sections" in text


def test_the_data_of_a_large_fleet_are_small(run: RunFolder) -> None:
    run.scenario(f"{TOML}10000")
    run.clients(*(f"dev-{place:04d}" for place in range(MOST_LIVES + 1)), group="dev")
    run.round({"dev-0000": "folded"})
    data = run_data(run.commit(), "completed")
    assert json.loads(data)["lives"] is None
    assert len(data) < 100_000


def test_a_life_has_as_many_calls_as_fit(run: RunFolder) -> None:
    run.scenario(f"{TOML}{MOST_LIVES}")
    run.clients("dev-0000", group="dev")
    for _ in range(12):
        run.round({"dev-0000": "folded"})
    [life] = json.loads(run_data(run.commit(), "completed"))["lives"].values()
    assert [call["round"] for call in life["calls"]] == list(range(3, 13))


def test_a_report_is_written_without_the_packages_of_the_live_page() -> None:
    code = (
        "import sys, muster.emulator.report; "
        "sys.exit(any(name in sys.modules for name in ('starlette', 'uvicorn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100).returncode == 0


@pytest.mark.parametrize(("kind", "begin"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_for_papers_are_files_that_the_same_run_gives_again(
    kind: str, begin: bytes, run: RunFolder
) -> None:
    folder = two_devices(run)
    found = []
    for _ in range(2):
        write_report(folder, kind)
        found.append({file.name: file.read_bytes() for file in (folder / "figures").iterdir()})
    assert found[0] == found[1]
    assert found[0]
    for name, content in found[0].items():
        assert name.endswith(f".{kind}")
        assert content.startswith(begin)
