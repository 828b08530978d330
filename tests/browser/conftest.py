"""Headless Chromium that looks at live pages."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import nothing_left, scenario

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"

OpenPage = Callable[..., Any]

_WATCH_SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium; name it with CHROMIUM")
    with api.sync_playwright() as playwright:
        # Inside a container, Chromium has no right to make a sandbox of its own.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens an address in a window of some width. After the test, the consoles must be empty, and
    nothing may have been asked of another address; a page from disk asks for nothing at all."""
    windows: list[Any] = []
    wrong: list[str] = []
    asked: list[str] = []
    opened: list[str] = []

    def open(url: str, width: int = 1600, **options: Any) -> Any:
        window = browser.new_context(viewport={"width": width, "height": 900}, **options)
        windows.append(window)
        page = window.new_page()
        page.set_default_timeout(180_000)
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", lambda request: asked.append(request.url))
        page.add_init_script(_WATCH_SHIFTS)
        opened.append(url)
        page.goto(url)
        page.wait_for_selector("#page:not([hidden])")
        return page

    yield open
    for window in windows:
        window.close()
    assert not wrong
    allowed = ("http://127.0.0.1:", *(url for url in opened if url.startswith("file:")))
    assert not [address for address in asked if not address.startswith(allowed)]


__all__ = ["nothing_left", "scenario"]


def violations(page: Any) -> list[Any]:
    """What axe objects to in a page as it stands."""
    if not AXE.is_file():
        pytest.skip(f"no axe-core in {AXE}")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in page.evaluate("axe.run()")["violations"]
    ]
