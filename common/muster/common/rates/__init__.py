"""Rates over time: the value that links follow, and the readers of recordings of others."""
