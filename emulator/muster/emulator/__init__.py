"""The emulator: `plan` a scenario, `run` it, `resume` a run, `compare` variants.

The command line is a thin layer over them.
"""

from muster.emulator.comparison import Comparison, compare, resume_comparison
from muster.emulator.planning import Plan, plan
from muster.emulator.running import Run, resume, run

__all__ = ["Comparison", "Plan", "Run", "compare", "plan", "resume", "resume_comparison", "run"]
