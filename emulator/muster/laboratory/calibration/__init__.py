"""Fits the speeds and links of devices to recorded rounds, and tells how well they predict others.

recorded = recorded_in([Path("runs/one")])        # or [Path("rounds.csv")]
found = calibrate(recorded, seed=1, held_out=0.25)
write_files(Path("fitted"), found)
"""
