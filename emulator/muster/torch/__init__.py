"""Run a fleet from Python or a notebook, with a model and data that are there (docs/notebooks.md).

    from muster.torch import run

    run(model=Net(), data=(x, y), rounds=10, devices=8)

The fleet is that of `muster run`: real processes and a run folder, which every command reads.
"""

from muster.torch.results import ShownComparison, ShownPlan, ShownRun, read, resume
from muster.torch.wrapped_task import WrappedTask, run, wrap

__all__ = [
    "ShownComparison",
    "ShownPlan",
    "ShownRun",
    "WrappedTask",
    "read",
    "resume",
    "run",
    "wrap",
]
