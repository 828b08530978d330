"""Exports the results of a run for other programs: tables (CSV, Parquet) and metrics over rounds
(TensorBoard, MLflow). One file has one sort of program.
"""

from muster.emulator.export.exporting import EXPORTERS, export

__all__ = ["EXPORTERS", "export"]
