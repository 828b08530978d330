"""The processes in which devices run, and how they start."""
