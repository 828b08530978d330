"""Experiments around runs: plans, which compute a run without running it, and comparisons."""
