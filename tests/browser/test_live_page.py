"""The live page in a browser, beside real runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import violations
from tests.live_page import MUSTER, Page, shown_by, start
from tests.run_folders import has_committed

if TYPE_CHECKING:
    from tests.browser.conftest import OpenPage
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

LEAST_SHIFT = 0.01
"""Google calls a page good up to 0.1."""

MOST_WORK = 2.5
"""Most work for a journal, as a multiple of that of a plain reader."""

LINKED = [
    {"name": "near", "count": 3},
    {"name": "far", "count": 3, "link": {"up": "200 kbit/s", "down": "1 Mbit/s", "rtt": "200 ms"}},
]


def planned(folder: Path, made: Any) -> Path:
    path = folder / "planned.toml"
    path.write_text(made.to_toml())
    return path


def text(page: Any, selector: str) -> str:
    return str(page.locator(selector).text_content())


def wait_for_text(page: Any, selector: str, words: str) -> None:
    page.wait_for_function(
        "([selector, words]) => document.querySelector(selector)?.textContent.includes(words)",
        arg=[selector, words],
    )


def test_a_run_is_watched_from_its_start_to_its_end_without_a_shift(
    scenario: MakeScenario, tmp_path: Path, open_page: OpenPage
) -> None:
    faults = [
        {"name": "outage", "do": "offline", "target": {"names": ["near-0000"]},
         "when": {"round": 3}, "for_rounds": 2}
    ]  # fmt: skip
    # A model of 20 KB, which takes a second on the link of `far`.
    task = {"name": "linear", "dimension": 5_000, "heterogeneity": 1.0}
    made = scenario(task=task, groups=LINKED, faults=faults, server={"rounds": 6})
    run = start(planned(tmp_path, made), "--out", str(tmp_path / "run"), "--live")
    assert run.stderr is not None
    url = Page(run.stderr).url
    wide, narrow = open_page(url, 1600), open_page(url, 400)
    assert text(wide, "#state") == "running"
    for page in (wide, narrow):
        wait_for_text(page, "#state", "completed")
        assert text(page, "#stage") == "round 6 of 6"
        assert "The rounds waited for far." in text(page, "#headline")
        assert "transfer" in text(page, "#headline")
        assert page.locator(".tile.s-u").count() == 6
        assert "verified" in text(page, "#faults")
        assert page.evaluate("window.shifted") < LEAST_SHIFT
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    run.communicate(timeout=60)
    assert run.returncode == 0


def test_a_fault_that_is_injected_by_a_click_appears_as_observed(
    scenario: MakeScenario, tmp_path: Path, open_page: OpenPage
) -> None:
    path = planned(tmp_path, scenario(server={"rounds": 100_000}))
    run = start(path, "--out", str(tmp_path / "run"), "--live")
    assert run.stderr is not None
    shown = Page(run.stderr)
    page = open_page(shown.url)
    wait_for_text(page, "#stage", "of 100000")
    page.get_by_role("button", name="Inject a fault…").click()
    page.locator("#operator [name=kind]").select_option("pause")
    page.locator("#operator [name=target]").select_option("one:dev")
    page.locator("#operator [name=for_s]").fill("0.5")
    confirm = page.get_by_role("button", name="Inject a fault", exact=True)
    confirm.click()  # the form is not sent without a token
    assert page.locator("#operator[open]").count() == 1
    page.locator("#operator [name=token]").fill(shown.operator)
    confirm.click()
    page.wait_for_selector("#operator:not([open])", state="attached")
    wait_for_text(page, "#faults", "pause-1")
    wait_for_text(page, "#faults", "healed")
    assert "observed" in text(page, "#faults")
    page.get_by_role("button", name="Stop the run…").click()
    page.get_by_role("button", name="Stop the run", exact=True).click()
    wait_for_text(page, "#state", "stopped")
    run.communicate(timeout=60)
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] == "stopped"


def test_the_page_survives_the_death_of_the_server_and_its_resume(
    scenario: MakeScenario, tmp_path: Path, open_page: OpenPage
) -> None:
    folder = tmp_path / "run"
    run = start(planned(tmp_path, scenario(server={"rounds": 400})), "--out", str(folder))
    while not has_committed(folder, 3):
        assert run.poll() is None
    server = json.loads((folder / "address.json").read_text())["pid"]
    os.kill(server, signal.SIGSTOP)  # the run would be over before the page is open
    with shown_by("live", str(folder)) as shown:
        page = open_page(shown.url)
        wait_for_text(page, "#stage", "of 400")
        os.kill(server, signal.SIGKILL)
        run.communicate(timeout=60)
        wait_for_text(page, "#state", "interrupted")
        assert "died" in text(page, "#journal")
        resumed = [*MUSTER, "run", "--resume", str(folder), "--quiet"]
        subprocess.run(resumed, check=True, timeout=200, capture_output=True)
        wait_for_text(page, "#state", "completed")
        assert text(page, "#stage") == "round 400 of 400"


@pytest.fixture(scope="module")
def finished(scenario: MakeScenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with links."""
    folder = tmp_path_factory.mktemp("finished")
    run = start(planned(folder, scenario(groups=LINKED)), "--out", str(folder / "run"))
    run.communicate(timeout=200)
    assert run.returncode == 0
    return folder / "run"


def test_a_device_opens_by_keyboard_and_shows_its_calls(
    finished: Path, open_page: OpenPage
) -> None:
    with shown_by("live", str(finished)) as shown:
        page = open_page(shown.url)
        page.locator(".tile").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#device[open]")
        assert text(page, "#device-title") == "near-0000"
        assert page.locator("#device tbody tr").count() == 5
        page.keyboard.press("Escape")
        assert page.locator("#device[open]").count() == 0
        page.locator("#find input").fill("far-0002")
        page.keyboard.press("Enter")
        page.wait_for_selector("#device[open]")
        assert text(page, "#device-title") == "far-0002"


def test_the_journal_can_be_filtered(finished: Path, open_page: OpenPage) -> None:
    with shown_by("live", str(finished)) as shown:
        page = open_page(shown.url)
        page.locator("#filter select").select_option("round_committed")
        assert page.locator("#journal .line").count() == 5
        page.locator("#filter [name=text]").fill("round 3,")
        assert page.locator("#journal .line").count() == 1


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_object_to(
    scheme: str, width: int, finished: Path, open_page: OpenPage
) -> None:
    with shown_by("live", str(finished)) as shown:
        page = open_page(shown.url, width, color_scheme=scheme)
        for opened in ("", "#fleet .tile"):
            if opened:
                page.locator(opened).first.click()
                page.wait_for_selector("#device[open]")
            assert not violations(page)


def test_a_folder_with_a_million_events_opens_with_few_times_the_work_of_reading_it(
    tmp_path: Path, open_page: OpenPage
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "scenario.toml").write_text(
        'name = "million"\n[server]\nrounds = 1000\n[[groups]]\nname = "dev"\ncount = 1000\n'
    )
    with (folder / "journal.jsonl").open("w") as journal:
        for each in million_events():
            journal.write(json.dumps(each) + "\n")
    command = [*MUSTER, "live", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            page = open_page(Page(program.stdout).url)
            wait_for_text(page, "#stage", "round 1000 of 1000")
            user, system = Path(f"/proc/{program.pid}/stat").read_text().split()[13:15]
            work_s = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
            # Processor time beside that of a plain reader, because a machine that is busy or slow
            # slows both.
            assert work_s < MOST_WORK * reading_s(folder / "journal.jsonl")
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(120)


def reading_s(journal: Path) -> float:
    """The processor time for which Python's own reader of JSON reads a journal."""
    began = time.process_time()
    with journal.open() as lines:
        for line in lines:
            json.loads(line)
    return time.process_time() - began


def million_events() -> Any:
    """The journal of 1,000 rounds with 1,000 devices."""
    common = {"role": "server", "incarnation": 1}
    start_ = {"run": "r", "round": 0, "version": 0, "population": 1000, "rounds": 1000,
              "counts": "rounds", "bytes_up": 0, "bytes_down": 0}  # fmt: skip
    yield {"event": "server_started", "at": 0.0, **common, **start_}
    for number in range(1, 1001):
        opened = {"round": number, "base_version": 0, "called": 1000, "scenario_s": None}
        yield {"event": "round_opened", "at": number, **common, **opened}
        for place in range(1000):
            came = {"round": number, "client": f"dev-{place:04d}", "attempt": 1, "bytes": 60040}
            yield {"event": "received", "at": number + 0.5, **common, **came}
        row = {"round": number, "version": number, "outcome": "aggregated", "called": 1000,
               "accepted": 1000, "folded": 1000, "bytes_up": 1, "bytes_down": 1,
               "seconds": 0.5}  # fmt: skip
        yield {"event": "round_committed", "at": number + 0.6, **common, **row}


LONGEST = (
    "A fault acts: outage (partition) on 5 devices of country.",
    (
        "The rounds wait for country. Its last update came 12.3 s after those of all other groups, "
        "in 48 of the newest 50 rounds. 85 % of its time is waiting for a turn to transfer, over a "
        "shared link that is up to 100 % full downwards. Round 1,234 is open: 13 of 15 updates "
        "have arrived, and the answers of 2 devices are missing (at work: 2 of country)."
    ),
)
"""The first line and the others of the box below the facts, as long as three groups make them."""


def test_the_box_of_the_finding_cuts_no_line(finished: Path, open_page: OpenPage) -> None:
    with shown_by("live", str(finished)) as shown:
        page = open_page(shown.url)
        page.evaluate(
            "words => words.forEach((each, n) => headline.children[n].textContent = each)", LONGEST
        )
        for width in range(600, 1700, 100):  # a narrower window has a bar to scroll
            page.set_viewport_size({"width": width, "height": 900})
            room, needed = page.evaluate("[headline.clientHeight, headline.scrollHeight]")
            assert needed <= room, width
