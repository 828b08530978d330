"""The charts of a run folder, for tests that look at what they show."""

from pathlib import Path

from muster.emulator.records.account import Account
from muster.emulator.report.chart import Chart
from muster.emulator.report.figures import FIGURES


def charts_of(name: str, folder: Path) -> list[Chart]:
    """The charts of a figure."""
    with Account(folder) as account:
        return FIGURES[name](account)


def findings(name: str, folder: Path) -> list[str]:
    """The titles of the charts of a figure."""
    return [chart.title for chart in charts_of(name, folder)]
