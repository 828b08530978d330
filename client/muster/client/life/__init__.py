"""Device life: what a scenario says of devices, and the simulation of their state."""
