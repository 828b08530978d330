"""Tables of text, for terminals and for Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a header, and rows with as many cells as the header."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def markdown(table: Table) -> str:
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows)
