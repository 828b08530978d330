"""Pages and lines for people call a device a device. Tables, files and the protocol say client."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import muster.emulator

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(muster.emulator.__file__).parent
FOR_PEOPLE = (
    *PACKAGE.glob("report/*.py"),
    PACKAGE / "records/summary.py",
    *PACKAGE.glob("live/*.py"),
    *PACKAGE.glob("runs/*.py"),
    *PACKAGE.glob("live/page/*.js"),
    *PACKAGE.glob("live/page/*.html"),
    *PACKAGE.glob("report/*.html"),
)
PROSE = re.compile(r"\bclients?\b", re.IGNORECASE)
VALUE = re.compile(r"\$?\{[^}]*\}")
NAMES_OF_A_TABLE = re.compile(r"^[a-z_]+(, [a-z_]+)*$|\b(FROM|WHERE|GROUP BY|ORDER BY|JOIN)\b")
"""What is a text with columns of the ledger: a list of names, or SQL."""


def texts_of(path: Path) -> Iterator[str]:
    """What a file may show to people: strings that are no docstrings; of a page, its texts."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        yield from re.findall(r">([^<>{}]+)<", source)
    elif path.suffix == ".js":
        yield from (text for pair in re.findall(r'"([^"\n]+)"|`([^`]+)`', source) for text in pair)
    else:
        tree = ast.parse(source)
        said = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        for each in ast.walk(tree):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield "" if id(each) in said else each.value


@pytest.mark.parametrize("path", FOR_PEOPLE, ids=lambda path: path.name)
def test_a_text_for_people_says_device(path: Path) -> None:
    found = [each for each in texts_of(path) if PROSE.search(VALUE.sub("", each))]
    assert not [each for each in found if not NAMES_OF_A_TABLE.search(each.strip())]
