"""The emulator: `run` a scenario, `resume` a run, `compare` variants of a scenario.

The command line is a thin layer over them.
"""

from muster.emulator.comparison import Comparison, compare, resume_comparison
from muster.emulator.running import Run, resume, run

__all__ = ["Comparison", "Run", "compare", "resume", "resume_comparison", "run"]
