"""The devices of a scenario: which there are, how they live, and when faults act on them."""
