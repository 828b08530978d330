"""The report of a run: figures and one page."""

from muster.emulator.report.page import report_account, write_report

__all__ = ["report_account", "write_report"]
