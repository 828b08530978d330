"""Injects faults into a running fleet, by schedule and by hand, and proves their effect."""
