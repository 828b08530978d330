"""Plans: the simulated availability and participation of a fleet, without running it."""

from muster.emulator.experiments.planning.plan import GroupPlan, Plan, plan

__all__ = ["GroupPlan", "Plan", "plan"]
