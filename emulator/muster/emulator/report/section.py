"""The sections of a report, and the tables in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows of text, in which numbers are already formatted.

    Attributes:
        words: number of columns, from the left, that hold words; the others hold numbers.
        wraps: whether cells hold sentences, which may take several lines.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    words: int = 1
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of the page.

    Attributes:
        text: a sentence or two that tell the reader what to look for.
        facts: pairs of label and value, shown large.
        figure: name of a figure; in a report it is one of `figures.FIGURES`.
        listing: long text, folded away until the reader opens it.
        points: sentences, shown as a list under the text.
    """

    title: str
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    figure: str = ""
    table: ReportTable | None = None
    listing: str = ""
    points: Sequence[str] = ()
