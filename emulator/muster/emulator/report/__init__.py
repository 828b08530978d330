"""The report of a run: figures and one page."""

from muster.emulator.report.page import write_report

__all__ = ["write_report"]
