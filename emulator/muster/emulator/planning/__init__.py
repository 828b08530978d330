"""Plans: the simulated availability and participation of a fleet, without running it."""

from muster.emulator.planning.plan import plan
from muster.emulator.planning.result import GroupPlan, Plan

__all__ = ["GroupPlan", "Plan", "plan"]
