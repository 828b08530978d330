"""Backends: how the programs of a run are started."""
