"""A comparison: one scenario in several variants, each run with the same seeds.

`plan` lists the runs, `comparing` runs them, `outcome` reads their results and computes means and
differences, `tables` and `figure` show them.
"""

from muster.emulator.comparison.comparing import compare, report_comparison, resume_comparison
from muster.emulator.comparison.comparison import Comparison

__all__ = ["Comparison", "compare", "report_comparison", "resume_comparison"]
