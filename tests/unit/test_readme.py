"""What the pages say is so: examples are valid, commands exist, links lead to files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli.commands import main
from muster.emulator.project.examples import examples
from muster.emulator.scenario.reading import read_scenario
from muster.server.aggregators import BUILT_IN

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("*.md")])

MOST_LINES_OF_AN_AGGREGATOR = 20


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_scenario_of_the_readme_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(blocks("toml")[0], encoding="utf-8")
    assert read_scenario(file).devices == 10


def test_the_readmes_other_tables_fit_into_its_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, aggregator, lively, linked, launch, faults, fleet = blocks("toml")
    (tmp_path / "my_rules.py").write_text(blocks("python")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "scenario.toml"
    swapped = scenario.replace('[server.aggregator]\nkind = "fedavg"\n', aggregator)
    file.write_text(swapped + launch, encoding="utf-8")
    read = read_scenario(file)
    assert read.server.aggregator.kind == "my_rules:SquareRoot"
    assert read.server.aggregator.model_dump()["floor"] == 16
    assert read.launch.restarts == 20
    file.write_text(scenario[: scenario.index("[[groups]]")] + fleet, encoding="utf-8")
    larger = read_scenario(file)
    assert (larger.devices, larger.processes) == (10_000, 10)
    assert larger.groups[0].link.compression.kind == "int8"
    file.write_text(scenario[: scenario.index("[[groups]]")] + lively, encoding="utf-8")
    phones = read_scenario(file).groups[0]
    assert phones.device.battery is not None
    assert phones.participation.require == ["charging", "unmetered", "idle"]
    assert phones.availability.kind == "diurnal"
    file.write_text(f"{scenario}\n{linked}", encoding="utf-8")
    assert read_scenario(file).groups[-1].shared_link.up == 1.5e6
    file.write_text(f"{scenario}\n{faults}", encoding="utf-8")
    struck = read_scenario(file)
    assert [fault.name for fault in struck.faults] == ["outage"]
    assert len(struck.expect) == 1


def test_an_aggregator_of_ones_own_is_short() -> None:
    assert len(blocks("python")[0].splitlines()) <= MOST_LINES_OF_AN_AGGREGATOR


def test_the_readme_lists_the_commands_that_exist() -> None:
    listed = re.findall(r"^\| `muster ([\w-]+)", README, re.MULTILINE)
    assert sorted(listed) == sorted(main.commands)


def test_the_pages_name_examples_that_exist() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"--example ([a-z][\w/-]*)", text)}
    assert "flower/digits" in named
    assert named <= {example.name for example in examples()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text)
    files = {link.partition("#")[0] for link in links if "://" not in link} - {""}
    assert {file for file in files if not (page.parent / file).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_into_a_page_lead_to_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([^)\s]+)\)", text)) <= anchors


@pytest.mark.parametrize("column", ["explained in", "on devices"], ids=["purposes", "refusals"])
def test_each_table_of_aggregators_names_all_of_them(column: str) -> None:
    page = (ROOT / "docs/aggregators.md").read_text(encoding="utf-8")
    rows = page.partition(f"{column} |\n")[2].partition("\n\n")[0].splitlines()
    cells = [next(cell for cell in row.split("|") if "`" in cell) for row in rows[1:]]
    named = re.findall(r"`([^`]+)`", " ".join(cells))
    assert sorted(named) == sorted(BUILT_IN)


@pytest.mark.slow
def test_generated_parts_are_those_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "docs/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
