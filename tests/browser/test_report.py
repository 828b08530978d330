"""The report of a real run, opened from disk in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import violations
from tests.live_page import start

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.conftest import OpenPage
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

GROUPS = [
    {"name": "near", "count": 3, "device": {"profile": "phone"}},
    {"name": "far", "count": 3, "link": {"up": "200 kbit/s", "down": "1 Mbit/s", "rtt": "200 ms"}},
]


@pytest.fixture(scope="module")
def report(scenario: MakeScenario, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report of a run with links, batteries and a fault."""
    folder = tmp_path_factory.mktemp("reported")
    faults = [
        {"name": "outage", "do": "offline", "target": {"names": ["near-0000"]},
         "when": {"round": 2}, "for_rounds": 2}
    ]  # fmt: skip
    planned = folder / "planned.toml"
    planned.write_text(scenario(groups=GROUPS, faults=faults).to_toml())
    run = start(planned, "--out", str(folder / "run"))
    run.communicate(timeout=200)
    assert run.returncode == 0
    return (folder / "run/report.html").as_uri()


def shown(page: Any, selector: str) -> str:
    return str(page.locator(selector).text_content())


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_the_page_without_a_program(
    scheme: str, width: int, report: str, open_page: OpenPage
) -> None:
    page = open_page(report, width, color_scheme=scheme, offline=True)
    assert shown(page, "#state") == "completed"
    assert "5 rounds" in shown(page, "header")
    assert "Faults of the scenario acted: outage." in shown(page, "header")
    for box in page.locator(".chart").all():
        if box.is_visible():
            assert box.locator("svg path").count() > 2
    figure = page.locator("[data-figure=learning] svg").first
    figure.hover()
    assert (
        page.locator("[data-figure=learning] .chart").first.locator("svg > svg path").count() >= 2
    )
    assert page.locator("[data-action], #operator").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not violations(page)
    page.locator("#filter select").select_option("round_committed")
    assert page.locator("#journal .line").count() == 5
    page.locator("#filter [name=text]").fill("round 3,")
    assert page.locator("#journal .line").count() == 1
    page.locator(".tile").nth(1).click()
    page.wait_for_selector("#device[open]")
    assert shown(page, "#device-title") == "near-0001"
    assert page.locator("#device tbody tr").count() == 5
    assert not violations(page)


def test_a_printed_report_shows_everything_in_light_colours(
    report: str, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(report, 1600, color_scheme="dark")
    colour = "getComputedStyle(document.documentElement).getPropertyValue('--paper')"
    dark = page.evaluate(colour)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(colour) != dark
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 with margins
    hidden = (
        "[...document.querySelectorAll('.scroll, .table, .figure, .chart, .headline, pre')]"
        ".filter((box) => box.scrollHeight > box.clientHeight + 1"
        " || box.scrollWidth > box.clientWidth + 1).map((box) => box.outerHTML.slice(0, 200))"
    )
    assert page.evaluate(hidden) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("details:not([open])").count() == 0
    assert not page.locator("#filter").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert page.evaluate(colour) == dark
    assert page.locator("details[open]").count() == 0


def test_charts_fit_on_paper_that_is_narrower_than_they_are(
    report: str, open_page: OpenPage
) -> None:
    page = open_page(report, 1600)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 400, "height": 900})
    wide = (
        "[...document.querySelectorAll('.chart, .chart > svg')].filter((chart) =>"
        " chart.getBoundingClientRect().right > innerWidth)"
    )
    assert page.locator(".chart > svg").count() > 3
    assert page.evaluate(f"{wide}.length") == 0


def test_a_link_opens_a_section_that_is_folded(report: str, open_page: OpenPage) -> None:
    page = open_page(report)
    page.get_by_role("link", name="Rounds", exact=True).click()
    page.wait_for_selector("details[open] table")
