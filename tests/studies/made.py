"""Results of runs that did not take place, for tests of what a study measures and claims."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from muster.emulator.records.account import Account
from muster.studies import Claim, Findings, Result, StudyRun


class MadeResult(Result):
    """The result of a planned run, with content that a test makes up.

    Its account has only the given tables. `course`, `final` and `tail_mean` read the table
    `evaluations`, as they do for a run.

    Args:
        tables: tables of the account by name, with the columns that the study reads.
        ended: whether the run completed. If not, it failed, and its tables cannot be read.
        summary: content of summary.json beside the status.
        vector: returns the parameters of the model, shape (parameters,), when the study reads it.
    """

    def __init__(
        self,
        run: StudyRun,
        tables: Mapping[str, pd.DataFrame],
        *,
        ended: bool = True,
        summary: Mapping[str, Any] | None = None,
        vector: Callable[[], npt.NDArray[np.float64]] | None = None,
    ) -> None:
        super().__init__(run, Path("/nowhere"))
        self.summary = {"status": "completed" if ended else "failed", **(summary or {})}
        self.problem = "" if ended else "it failed in a test"
        self._tables, self._made_vector = SimpleNamespace(**tables), vector

    @property
    def account(self) -> Account:
        self._require()
        return cast("Account", self._tables)

    @property
    def vector(self) -> npt.NDArray[np.float32]:
        self._require()
        assert self._made_vector is not None, "the test gives no vector"
        return self._made_vector().astype(np.float32)


def statements(findings: Findings) -> dict[str, Claim]:
    """The claims and the checks of a study, by their text."""
    return {claim.claim: claim for claim in (*findings.claims, *findings.checks)}
