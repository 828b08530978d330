"""Commands in blocks of the pages: from the clone's root, as the README has them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").glob("*.md"))
        # These change the folder first, or run on other machines, or show what a command prints.
        if page.stem not in {"testing", "flower", "cluster", "commands", "tutorial-resilience"}
    ),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_names_the_environment_of_the_clone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.S | re.M))
    assert re.findall(r"^(?:muster|pytest|python) .*", blocks, re.M) == []
