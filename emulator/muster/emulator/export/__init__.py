"""Exports the results of a run for other programs: tables (CSV, Parquet) and metrics over rounds
(TensorBoard, MLflow); and tells trackers of a run that goes on. One file has one sort of program.
"""

from muster.emulator.export.exporting import EXPORTERS, export

__all__ = ["EXPORTERS", "export"]
