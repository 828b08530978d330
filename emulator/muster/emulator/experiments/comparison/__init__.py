"""A comparison: one scenario in several variants, each run over the same seeds.

`plan` says what will be run, `comparing` runs it, `outcome` reads what came of it, `intervals` does
the statistics, `tables` and `figure` show them.
"""

from muster.emulator.experiments.comparison.comparing import Comparison, compare, resume_comparison

__all__ = ["Comparison", "compare", "resume_comparison"]
