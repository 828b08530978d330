"""A device: its learning, its memory, its session, and how it decides on calls."""
