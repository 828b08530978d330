"""The environment variables that are decided."""

from generation.markdown import table
from muster.common.environment import TABLE


def variables() -> list[str]:
    """A row for each row of the table in `muster.common.environment`."""
    rows = [
        (
            ", ".join(f"`{name}`" for name in row.names.split()),
            row.reader,
            row.fate.value + (f": `{row.value}`" if row.value else ""),
            row.reason,
        )
        for row in TABLE
    ]
    return table(("variable", "read by", "it", "reason"), rows)
