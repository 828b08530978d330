"""The page of a study begins with a table: what the paper or theory states, and what was found.

A study of a paper must have such a table.
"""

import re
from pathlib import Path

import pytest

from muster.studies.registry import STUDIES

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "studies"
COLUMNS = ["what the paper states", "what we ran", "theirs", "ours", "holds?"]
OF_THEORY = ["theory states", "what we ran", "expected", "ours", "holds?"]
"""The columns of a study without a paper."""
ANSWERS = ("yes", "in part", "no", "not run", "our addition")
"""What a row answers with: whether the statement holds, or that nothing was run that could show it.
A reason may follow."""


def cells(line: str) -> list[str]:
    """The cells of a row of a table; `\\|` does not separate cells."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a page: their rows, from the titles of the columns on."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append(cells(line))
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def begins_with_the_table(text: str) -> bool:
    """Whether the first table of a page has these columns, and stands below its first heading."""
    first = tables(text)[0]
    above = text.split("| " + first[0][0])[0]
    return first[0] in (COLUMNS, OF_THEORY) and len(re.findall(r"^## ", above, re.MULTILINE)) == 1


def answered(cell: str) -> bool:
    """Whether a cell begins with an answer: "not here" does not begin with "no"."""
    return re.match(rf"(?:{'|'.join(ANSWERS)})\b", cell) is not None


def wrong_rows(text: str) -> list[list[str]]:
    """The rows of the first table with an empty cell, a cell too many or few, or without answer."""
    rows = tables(text)[0][2:]
    return [
        row for row in rows if len(row) != len(COLUMNS) or not all(row) or not answered(row[-1])
    ]


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def pages_with(column: str) -> set[str]:
    """The pages with a table that begins with this column."""
    return {file.stem for file in PAGES.glob("*.md") if f"| {column} |" in file.read_text()}


WITH_TABLE = sorted(pages_with(COLUMNS[0]) | pages_with(OF_THEORY[0]))


@pytest.mark.parametrize("name", WITH_TABLE)
def test_the_page_begins_with_what_was_stated(name: str) -> None:
    assert begins_with_the_table(page(name))
    assert wrong_rows(page(name)) == []


def test_every_study_of_a_paper_has_this_table() -> None:
    of_papers = {name for name, study in STUDIES.built_in.items() if study.paper}
    assert of_papers <= pages_with(COLUMNS[0])


def test_a_table_that_is_late_or_incomplete_is_recognised() -> None:
    head = "# a\n\n## The paper\n\n| " + " | ".join(COLUMNS) + " |\n|---|---|---|---|---|\n"
    assert begins_with_the_table(head + "| a | b | c | d | yes |\n")
    assert not begins_with_the_table(head.replace("# a\n", "# a\n\n## b\n"))
    assert not begins_with_the_table(head.replace("theirs", "paper"))
    of_theory = head.replace(" | ".join(COLUMNS), " | ".join(OF_THEORY))
    assert begins_with_the_table(of_theory + "| a | b | c | d | yes |\n")
    assert wrong_rows(head + "| a \\| b | b | c | d | no, e |\n") == []
    assert len(wrong_rows(head + "| a | b | c | d |\n| a | b | | d | yes |\n")) == 2
    assert len(wrong_rows(head + "| a | b | c | d | perhaps |\n")) == 1
    assert len(wrong_rows(head + "| a | b | c | d | not here |\n")) == 1
