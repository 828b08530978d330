"""A comparison as a piece of HTML, for notebooks."""

import base64

from muster.emulator.comparison.comparison import Comparison
from muster.emulator.comparison.tables import FIGURE, extent, problems, tables_of
from muster.emulator.records.summary import clean
from muster.emulator.report.fragment import fragment
from muster.emulator.report.section import ReportSection, ReportTable


def comparison_fragment(comparison: Comparison) -> str:
    """The figure and the tables of a comparison, and what went wrong in it."""
    png = base64.b64encode((comparison.folder / FIGURE).read_bytes()).decode()
    picture = {"source": f"data:image/png;base64,{png}", "findings": "the curves of all variants"}
    top = ReportSection(
        clean(comparison.name),
        extent(comparison.runs),
        figure="curves",
        points=problems(comparison.runs),
    )
    tables = [
        ReportSection(table.title, table=ReportTable(table.header, table.rows))
        for table in tables_of(comparison)
    ]
    return fragment([top, *tables], {"curves": picture}, comparison.status)
