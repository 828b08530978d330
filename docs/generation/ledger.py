"""The columns of the ledger."""

from collections.abc import Callable

from generation.attributes import explained
from generation.markdown import table
from muster.server.account.columns import LedgerTable


def columns(of: LedgerTable) -> Callable[[], list[str]]:
    """Rows for the columns of a table.

    Raises:
        ValueError: the class of its rows does not explain every column once.
    """

    def rows() -> list[str]:
        parts = [kind for kind in of.row.__annotations__.values() if hasattr(kind, "_fields")]
        meanings = {n: text for kind in (of.row, *parts) for n, text in explained(kind).items()}
        there = sorted(column.name for column in of.columns)
        if sorted(name for names in meanings for name in names) != there:
            raise ValueError(f"{of.row.__name__} does not explain each of {there} once")
        cells = ((", ".join(f"`{n}`" for n in names), text) for names, text in meanings.items())
        return table(("column", "meaning"), cells)

    return rows
