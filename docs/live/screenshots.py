"""Takes the pictures of docs/live.md from a real run: `python docs/live/screenshots.py`.

It needs the extras `live` and `browser`, and Chromium (CHROMIUM=/usr/bin/chromium).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SCENARIO = HERE.parents[1] / "examples/rural.toml"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]
FROM_ROUND = 6


def main() -> None:
    """Run the scenario, and take the pictures while it runs."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        command = [*MUSTER, "run", str(SCENARIO), "--out", f"{folder}/run", "--live", "--quiet"]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as run:
            assert run.stderr is not None
            found = re.search(r"http\S+", run.stderr.readline())
            assert found is not None
            take_pictures(browser, found.group())
            run.terminate()
            run.communicate()
        browser.close()


def take_pictures(browser: Any, url: str) -> None:
    """Wait for some rounds, then take all pictures."""
    window = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme="light", device_scale_factor=1.25
    )
    page = window.new_page()
    page.set_default_timeout(300_000)
    page.goto(url)
    page.wait_for_function(
        "(least) => (document.querySelector('#stage')?.textContent.match(/^round ([0-9]+)/)?.[1]"
        " ?? 0) >= least",
        arg=FROM_ROUND,
    )
    page.wait_for_selector(".tile.s-w")
    page.screenshot(path=HERE / "rural.png", full_page=True)
    page.locator(".tile").first.click()
    page.wait_for_selector("#device[open]")
    page.locator("#device").screenshot(path=HERE / "device.png")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Inject a fault…").click()
    page.locator("#operator [name=kind]").select_option("partition")
    page.locator("#operator [name=target]").select_option("group:country")
    page.locator("#operator").screenshot(path=HERE / "inject.png")
    window.close()


if __name__ == "__main__":
    main()
