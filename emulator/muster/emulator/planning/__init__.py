"""What is computed without a run: calls, participation, and the exact truth about both."""

from muster.emulator.planning.plan import plan
from muster.emulator.planning.result import GroupPlan, Plan

__all__ = ["GroupPlan", "Plan", "plan"]
