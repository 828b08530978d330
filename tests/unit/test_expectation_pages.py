"""The pages on expectations and audits, against the code."""

from pathlib import Path

from muster.emulator.expectations.facts import FACTS, example_of
from muster.emulator.expectations.language import FUNCTIONS
from muster.emulator.run_audit.auditing import CHECKS
from muster.emulator.scenario.reading import read_scenario

ROOT = Path(__file__).parents[2]


def test_the_page_lists_every_fact_with_its_meaning() -> None:
    page = (ROOT / "docs/expectations.md").read_text(encoding="utf-8")
    for name, kind in FACTS.items():
        shown = example_of(name)
        assert f"| `{shown}` | {kind.meaning} |" in page
    for function in FUNCTIONS:
        assert f"`{function}(" in page


def test_the_page_lists_every_check_of_an_audit() -> None:
    page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
    for check in CHECKS:
        assert f"| {check.title} |" in page


def test_the_example_expects_something() -> None:
    scenario = read_scenario(ROOT / "examples/expectations.toml")
    assert len(scenario.expect) == 6
    assert scenario.server.keep_updates
