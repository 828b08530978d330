"""What a fleet's life will be, without running it."""

from muster.emulator.experiments.planning.plan import GroupPlan, Plan, plan

__all__ = ["GroupPlan", "Plan", "plan"]
