"""Injected faults: the table `[[faults]]`, the timeline that follows from it and the seed, the
injection, and the proof of effect."""
