"""The results of a comparison."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison.

    Attributes:
        name: name of the scenario.
        folder: folder with all files of the comparison.
        status: completed; failed (some runs failed, see `runs`); or stopped (it can be resumed).
        runs: one row per run, as in comparison.csv.
        means: one row per variant and measure: n, mean, and its 95 % confidence interval from low
            to high (Student's t over the seeds; NaN with one seed).
        differences: the same for the difference of each variant to the first, between runs of the
            same seed.
        courses: one row per evaluation of each run, also of failed runs: round, loss, accuracy,
            and the bytes and the scenario time until then.
    """

    name: str
    folder: Path
    status: str
    runs: "pd.DataFrame"
    means: "pd.DataFrame"
    differences: "pd.DataFrame"
    courses: "pd.DataFrame"
