"""The sections of a report, and the tables in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Summary = Mapping[str, Any]

_NARROW = 6
"""The most columns of a table that fits into half of the width."""


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
        folded: whether the report shows only the title until the reader opens the section.
    """

    title: str
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    figure: str = ""
    table: ReportTable | None = None
    listing: str = ""
    points: Sequence[str] = ()
    folded: bool = False

    @property
    def wide(self) -> bool:
        """Whether it needs the whole width of a report."""
        columns = len(self.table.columns) if self.table else 0
        return self.folded or columns > _NARROW
