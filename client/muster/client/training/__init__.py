"""Local training: its settings, its steps, and the trainers and optimizers that can be chosen."""
