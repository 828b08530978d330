"""The emulator: `run` a scenario, `resume` a run; the command line is a thin layer over them."""

from muster.emulator.running import Run, resume, run

__all__ = ["Run", "resume", "run"]
