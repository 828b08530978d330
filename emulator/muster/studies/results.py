"""The results of a study's runs, for its `judge`.

Rule: nothing stays open or loaded. `by_seed` closes a run's account after measuring it, so a
hundred runs of a thousand rounds take as much memory as one run.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from safetensors.numpy import load_file

from muster.common.errors import RunFailed
from muster.common.tensors import WIRE, Vector
from muster.emulator.comparison.run_set import ENDED
from muster.emulator.records.account import Account
from muster.emulator.records.summary import MODEL, read_summary

if TYPE_CHECKING:
    from muster.emulator.scenario.scenario import Scenario
    from muster.studies.study_run import Label, StudyRun

Measure = Callable[["Result"], float]


class Result:
    """The result of one run.

    Attributes:
        run: the planned run: part, labels, scenario.
        folder: the run folder.
        summary: the content of summary.json; empty if there is none.
        problem: why the run has no result; empty if it ended by itself.
    """

    def __init__(self, run: "StudyRun", folder: Path, problem: str = "") -> None:
        self.run, self.folder = run, folder
        self.summary = read_summary(folder)
        self.problem = problem if not self.ended else ""
        if not self.ended and not self.problem:
            self.problem = str(self.summary.get("detail") or "it did not end by itself")
        self._account: Account | None = None

    @property
    def status(self) -> str:
        """completed, diverged, stopped, failed, unfinished or not run."""
        return str(self.summary.get("status") or ("failed" if self.folder.exists() else "not run"))

    @property
    def ended(self) -> bool:
        """Whether the run ended by itself: completed or diverged."""
        return self.summary.get("status") in ENDED

    @property
    def part(self) -> str:
        return self.run.part

    @property
    def labels(self) -> "Mapping[str, Label]":
        return self.run.labels

    @property
    def seed(self) -> int:
        return self.run.scenario.seed

    @property
    def scenario(self) -> "Scenario":
        return self.run.scenario

    @property
    def account(self) -> Account:
        """The run's tables, opened on first use and released by `close`.

        Raises:
            RunFailed: the run did not end by itself.
        """
        self._require()
        if self._account is None:
            self._account = Account(self.folder)
        return self._account

    def course(self, measure: str) -> "pd.Series[float]":
        """A measure of the offered model, indexed by the round that produced the model.

        Args:
            measure: loss, accuracy, or another metric of the task; NaN if it was not measured.

        Raises:
            RunFailed: the run did not end by itself.
        """
        measured = self.account.evaluations.set_index("round")
        if measure in ("loss", "accuracy"):
            return measured[measure].astype(float)
        found = [json.loads(text or "{}").get(measure) for text in measured["metrics"]]
        return pd.Series(found, index=measured.index, name=measure, dtype="float64")

    def final(self, measure: str) -> float:
        """The last value of `course`."""
        return float(self.course(measure).iloc[-1])

    def tail_mean(self, measure: str, share: float = 0.2) -> float:
        """Mean of `course` over the last `share` of the planned rounds; NaN if none was measured.

        A mean depends less on chance than the value of a single round.
        """
        course = self.course(measure)
        return float(course[course.index > (1 - share) * self.scenario.server.rounds].mean())

    @property
    def model(self) -> dict[str, npt.NDArray[np.float32]]:
        """The tensors of the model that the run offered.

        Raises:
            RunFailed: the run did not end by itself.
        """
        self._require()
        return load_file(self.folder / MODEL)

    @property
    def vector(self) -> Vector:
        """`model` as one vector: its tensors in the order of the schema, shape (parameters,)."""
        self._require()
        body = (self.folder / MODEL).read_bytes()
        header = int.from_bytes(body[:8], "little")  # the file's body is the vector: tensors.py
        return np.frombuffer(body, WIRE, offset=8 + header).astype(np.float32)

    @property
    def bytes(self) -> int:
        """Bytes of models and updates that crossed the network, in both directions."""
        return int(self.summary.get("bytes_up", 0) + self.summary.get("bytes_down", 0))

    @property
    def seconds(self) -> float:
        """Wall-clock seconds spent in rounds."""
        return float(self.summary.get("seconds", 0.0))

    def close(self) -> None:
        """Release the account and its tables."""
        if self._account is not None:
            self._account.close()
            self._account = None

    def _require(self) -> None:
        if not self.ended:
            raise RunFailed(f"{self.run.title}: {self.problem}")


class Results(Sequence[Result]):
    """The results of a study, in the order of its plan: one for every planned run."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: int | slice) -> "Result | Results":
        if isinstance(index, slice):
            return Results(self._results[index])
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def where(self, **labels: "Label") -> "Results":
        """The results whose labels, `part` and `seed` are as given; there may be none."""
        return Results([result for result in self if _fits(result, labels)])

    def one(self, **labels: "Label") -> Result:
        """The only result whose labels, `part` and `seed` are as given.

        Raises:
            LookupError: no result fits, or several do.
        """
        found = self.where(**labels)
        if len(found) != 1:
            raise LookupError(f"expected one run with {labels}, found {len(found)}")
        return found[0]

    def by_seed(self, measure: Measure, **labels: "Label") -> dict[int, float]:
        """`measure` of the run of every seed; NaN for a run that did not end by itself.

        Args:
            labels: labels, and `part`, that select one run per seed.

        Raises:
            LookupError: no run is selected, or two runs of the same seed.
        """
        found: dict[int, float] = {}
        for result in self.where(**labels):
            if result.seed in found:
                raise LookupError(f"{labels} picks several runs with seed {result.seed}")
            found[result.seed] = float(measure(result)) if result.ended else math.nan
            result.close()
        if not found:
            raise LookupError(f"no run was planned with {labels}")
        return found

    def courses(
        self, course: "Callable[[Result], pd.Series[float]]", **labels: "Label"
    ) -> pd.DataFrame:
        """`course` by round, a column for each seed whose run ended by itself.

        Args:
            labels: labels, and `part`, that select at most one run per seed.
        """
        found = {}
        for result in self.where(**labels):
            if result.ended:
                found[result.seed] = course(result)
            result.close()
        return pd.DataFrame(found)

    def close(self) -> None:
        """Release all accounts."""
        for result in self:
            result.close()


def _fits(result: Result, labels: "Mapping[str, Label]") -> bool:
    there: dict[str, Any] = {"part": result.part, "seed": result.seed, **result.labels}
    return all(name in there and there[name] == value for name, value in labels.items())
