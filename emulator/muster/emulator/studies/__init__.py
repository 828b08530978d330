"""Studies: code that knows its runs, its claims, its figures and tables.

`study` is the contract, `claims` the rules by which a claim holds, `results` what runs leave to
judge, `registry` the studies there are; `plan`, `running`, `judging` and `page` are the frame.
"""

from muster.emulator.studies.claims import (
    BySeed,
    Claim,
    at_most,
    close,
    difference,
    exact,
    greater,
    grows,
    higher,
)
from muster.emulator.studies.results import Result, Results
from muster.emulator.studies.study import (
    Findings,
    Options,
    Study,
    StudyFigure,
    StudyRun,
    StudyTable,
)

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
]
