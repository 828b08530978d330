"""The contract between a study and the framework that runs it.

The framework asks a study for its runs, shows what they will cost, runs them over the real fleet,
asks the study to judge the results, and writes the findings. A study itself starts nothing and
writes nothing:

    study = STUDIES.find(name)(kind=name)
    runs = study.runs(options)
    ...                                     # every scenario, one process per device
    findings = study.judge(Results(...), options)
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from muster.common.plugins import Plugin
from muster.simulation.workers import WorkerBackend
from muster.studies.claims import Claim
from muster.studies.results import Results
from muster.studies.study_run import StudyRun

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FIRST_SEED, SEEDS, QUICK_SEEDS = 101, 5, 2


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a study from the command line.

    Attributes:
        quick: whether runs are smaller and fewer, to check within minutes that everything works.
        seed: the first of `seeds` consecutive seeds. Nothing is tuned on these seeds.
        data: the data directory; with None, the study uses bundled data and says so in its
            `remarks`.
    """

    quick: bool = False
    seed: int = FIRST_SEED
    seeds: int = SEEDS
    data: str | None = None
    backend: WorkerBackend = "processes"

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """A figure: `figures/<name>.png`, and a section of the page.

    Attributes:
        draw: draws the figure, without pyplot and in the look of
            `muster.emulator.report.style`; the titles of its axes state the findings. It is
            called only if a page is written.
        text: a sentence or two that tell the reader what to look for.
    """

    name: str
    title: str
    draw: "Callable[[], Figure]"
    text: str = ""


@dataclass(frozen=True, slots=True)
class StudyTable:
    """A table: `<name>.csv` with its numbers in full, and a section of the page.

    Attributes:
        frame: the table; its index is not shown.
        text: a sentence or two that tell the reader what to look for.
    """

    name: str
    title: str
    frame: "pd.DataFrame"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a study.

    Attributes:
        claims: all claims with their judgement, including those that could not be judged. A claim
            can fail although the program is right.
        checks: statements that hold by construction: constants, identities, and what the account
            must say. One that fails shows a mistake in the program.
        notes: sentences that a reader of the results has to know.
    """

    claims: Sequence[Claim]
    checks: Sequence[Claim] = ()
    figures: Sequence[StudyFigure] = ()
    tables: Sequence[StudyTable] = ()
    notes: Sequence[str] = ()


DIGITS_FOR_MNIST = "No data directory: scikit-learn's 8×8 digits replace MNIST."


class Study(Plugin):
    """A study: its runs and its judgement. It keeps no state, so it can be asked again.

    Attributes:
        name: name for its folder and its page.
        about: what it shows, in a line.
        paper: the paper whose claims it checks: authors, title, year; empty for a study of our own.
        paper_sizes: part to the sizes in the paper, shown beside the sizes of the runs.
        quick_seeds: number of seeds with `--quick`, unless `--seeds` is given.
        without_data: the remark if no data directory is given; empty: none.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    paper: ClassVar[str] = ""
    paper_sizes: ClassVar[Mapping[str, str]] = {}
    quick_seeds: ClassVar[int] = QUICK_SEEDS
    without_data: ClassVar[str] = ""

    @abstractmethod
    def runs(self, options: Options) -> Sequence[StudyRun]:
        """All runs of the study, in order.

        Use the same seeds for runs that are compared, because claims pair runs by seed.

        Raises:
            ConfigError: the options cannot be met, for example because data is missing.
        """

    @abstractmethod
    def judge(self, results: Results, options: Options) -> Findings:
        """Measure the results, judge the claims, and draw figures and tables.

        Runs may have failed. `results.by_seed` has NaN for those, so that claims about them fail.
        Reading the account or model of a failed run raises `RunFailed`, which ends the judgement.
        """

    def remarks(self, options: Options) -> Sequence[str]:
        """Sentences shown before the first run and on the page, for example that bundled data
        replaces a missing data set."""
        return (self.without_data,) if self.without_data and options.data is None else ()
