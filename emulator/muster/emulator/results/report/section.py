"""What a part of the report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, with numbers already written as they are to be read.

    Attributes:
        words: how many columns, from the left, hold words; the others hold numbers.
        wraps: whether cells hold sentences, which may take several lines.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    words: int = 1
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of the page.

    Attributes:
        text: what to look for, in a sentence or two.
        facts: label and value, shown large.
        figure: name of a figure, in a report one of `figures.FIGURES`.
        listing: long text, folded away until somebody opens it.
        points: sentences, one below the other, under the text.
    """

    title: str
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    figure: str = ""
    table: Table | None = None
    listing: str = ""
    points: Sequence[str] = ()
