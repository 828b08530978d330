"""Writes clinics.csv beside this file, for clinics.toml: made-up patients of twelve clinics.

python examples/data/clinics.py
"""

import csv
from pathlib import Path

import numpy as np


def main() -> None:
    random = np.random.default_rng(1)
    with Path(__file__).with_name("clinics.csv").open("w", newline="") as file:
        write = csv.writer(file).writerow
        write(["clinic", "age", "bmi", "glucose", "diagnosis"])
        for clinic in range(12):
            older = random.normal(0, 8)
            for _ in range(int(random.integers(30, 200))):
                age, bmi = random.normal(55 + older, 12), random.normal(26, 4)
                glucose = random.normal(5.0 + 0.02 * (age - 55) + 0.1 * (bmi - 26), 0.6)
                ill = glucose + 0.03 * (age - 55) + random.normal(0, 0.4) > 5.6
                values = [f"{value:.1f}" for value in (age, bmi, glucose)]
                write([f"clinic-{clinic:02d}", *values, "ill" if ill else "healthy"])


if __name__ == "__main__":
    main()
