"""The page of a league: its table is sorted by the column whose heading is clicked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster.laboratory.league.page import write_pages
from muster.laboratory.league.plan import make_plan
from muster.laboratory.league.standings import standings_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

ACCURACY = {"fedavg": 0.5, "mifa": 0.9, "median": 0.7}


def test_the_table_is_sorted_by_the_heading_that_is_clicked(browser: Any, tmp_path: Path) -> None:
    plan = make_plan(["mifa,median,scaffold"], ["late"], seeds=1, first_seed=1)
    for rule, accuracy in ACCURACY.items():
        run = tmp_path / f"late/{rule}-seed1"
        run.mkdir(parents=True)
        summary = {"status": "completed", "rounds": 1, "final": {"accuracy": accuracy}}
        (run / "summary.json").write_text(json.dumps(summary))
    write_pages(standings_of(tmp_path, plan, {}))
    page = browser.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.goto((tmp_path / "league.html").as_uri())

    def rules() -> list[str]:
        found: list[str] = page.locator("#league tbody td:nth-child(2)").all_inner_texts()
        return found

    heading = page.locator("#league th button").nth(2)
    assert rules() == ["fedavg", "mifa", "median", "scaffold"]
    heading.click()
    assert rules() == ["fedavg", "median", "mifa", "scaffold"]  # what is refused stays below
    heading.click()
    assert rules() == ["mifa", "median", "fedavg", "scaffold"]
    page.locator("#league th button").nth(1).click()
    assert rules() == ["fedavg", "median", "mifa", "scaffold"]
    assert wrong == []  # as a script that the page's policy forbids
