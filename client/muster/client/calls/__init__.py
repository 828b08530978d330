"""The calls of a pack's devices: decided, trained and answered."""
