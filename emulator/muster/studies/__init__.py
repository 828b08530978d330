"""Studies: plug-ins that define runs, and judge claims, figures and tables from their results.

`study` is the contract, `claims` has the rules that decide whether a claim holds, `results` gives
access to the results of runs, and `registry` lists the studies. `plan`, `running`, `judging` and
`page` are the framework that runs every study.
"""

from muster.studies.claims import (
    BySeed,
    Claim,
    at_most,
    close,
    difference,
    exact,
    greater,
    grows,
    higher,
    negligible,
)
from muster.studies.results import Result, Results
from muster.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import StudyRun

__all__ = [
    "BySeed",
    "Claim",
    "Findings",
    "Options",
    "Result",
    "Results",
    "Study",
    "StudyFigure",
    "StudyRun",
    "StudyTable",
    "at_most",
    "close",
    "difference",
    "exact",
    "greater",
    "grows",
    "higher",
    "negligible",
]
