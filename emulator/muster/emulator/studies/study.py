"""The contract: what a study tells the frame, and what it is given to judge by.

The frame asks a study for its runs, shows what they will cost, runs them over the real fleet, asks
the study to judge, and writes what it found. A study starts nothing and writes nothing:

    study = STUDIES.find(name)(kind=name)
    runs = study.runs(options)
    ...                                     # every scenario, one process per device
    findings = study.judge(Results(...), options)
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from muster.common.plugins import Plugin
from muster.emulator.experiments.comparison.variants import value_text
from muster.emulator.launch.backend import BackendName
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.studies.claims import Claim
from muster.emulator.studies.results import Results

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Label = str | int | float | bool

FIRST_SEED, SEEDS, QUICK_SEEDS = 101, 5, 2


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked of a study on the command line.

    Attributes:
        quick: smaller and fewer, to see that all works: a minute or two.
        seed: the first of `seeds` seeds that follow one another. Nothing is tuned on them.
        data: the data directory; None: there is none, and the study does with bundled data, which
            it says in its `remarks`.
    """

    quick: bool = False
    seed: int = FIRST_SEED
    seeds: int = SEEDS
    data: str | None = None
    backend: BackendName = "processes"

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study.

    Attributes:
        part: the sort of runs it belongs to, for example "A"; what is shown of sizes goes by it.
        labels: what tells it from the other runs of its part and seed, for example
            {"method": "fedipw", "strength": 1.5}. `judge` finds it again by them.
        scenario: what is run; its seed is the run's.
        expected_s: seconds that it should take on two cores, from start to end.
    """

    part: str
    labels: Mapping[str, Label]
    scenario: Scenario
    expected_s: float

    @property
    def title(self) -> str:
        """For example "A fedipw strength=1.5 seed 101"."""
        words = [
            value if isinstance(value, str) else f"{name}={value_text(value)}"
            for name, value in self.labels.items()
        ]
        return " ".join([self.part, *words, f"seed {self.scenario.seed}"])


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """A figure: `figures/<name>.png`, and a section of the page.

    Attributes:
        figure: drawn without pyplot; `muster.emulator.results.report.style` has the look of all
            figures, and its axes' titles state what was found.
        text: what to look for, in a sentence or two.
    """

    name: str
    title: str
    figure: "Figure"
    text: str = ""


@dataclass(frozen=True, slots=True)
class StudyTable:
    """A table: `<name>.csv` with its numbers in full, and a section of the page.

    Attributes:
        frame: its index is not shown.
        text: what to look for, in a sentence or two.
    """

    name: str
    title: str
    frame: "pd.DataFrame"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a study found.

    Attributes:
        claims: as judged; all of them, also those that could not be.
        notes: sentences that a reader of the results has to know.
    """

    claims: Sequence[Claim]
    figures: Sequence[StudyFigure] = ()
    tables: Sequence[StudyTable] = ()
    notes: Sequence[str] = ()


class Study(Plugin):
    """A study: its runs and its judgement. It keeps no state, and does the same when asked again.

    Attributes:
        name: of its folder and its page.
        about: what it shows, in a line.
        paper: whose claims it checks: authors, title, year; empty for a study of our own.
        paper_sizes: part to what the paper has there, shown beside what is run here.
        quick_seeds: how many seeds `--quick` takes unless `--seeds` says otherwise.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    paper: ClassVar[str] = ""
    paper_sizes: ClassVar[Mapping[str, str]] = {}
    quick_seeds: ClassVar[int] = QUICK_SEEDS

    @abstractmethod
    def runs(self, options: Options) -> Sequence[StudyRun]:
        """Everything to be run, in the order in which it shall be.

        Run the same seeds for what is compared: claims pair by seed.

        Raises:
            ConfigError: what is asked for cannot be had, for example a data directory.
        """

    @abstractmethod
    def judge(self, results: Results, options: Options) -> Findings:
        """Measure, judge and draw.

        Runs may have failed: `results.by_seed` has NaN for those and the claims fail by themselves;
        whoever reads an account or a model directly gets `RunFailed`, which ends the judgement.
        """

    def remarks(self, options: Options) -> Sequence[str]:
        """Sentences to be said before anything is run, and on the page: for example which data
        stand in for those that are not there."""
        return ()
