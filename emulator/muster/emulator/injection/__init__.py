"""The injection of faults into a running fleet, by schedule and by hand, and the proof of their effect."""
