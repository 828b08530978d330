"""The plan of a study: every run with its whole scenario, checked before the first run begins."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import orjson

from muster.common.errors import ConfigError
from muster.common.installation import VERSION
from muster.emulator.comparison.variants import folder_names
from muster.emulator.records.tabular import Table
from muster.emulator.scenario.reading import settled
from muster.emulator.scenario.scenario import Scenario
from muster.studies.registry import STUDIES
from muster.studies.study import Options, Study
from muster.studies.study_run import StudyRun

RUNS = "runs"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run and its folder.

    Attributes:
        folder: the run folder, relative to the study's, for example "runs/A-fedipw-seed-101".
    """

    folder: str
    run: StudyRun

    @property
    def title(self) -> str:
        return self.run.title

    @property
    def scenario(self) -> Scenario:
        return self.run.scenario

    @property
    def expected_s(self) -> float:
        return self.run.expected_s


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """All runs of a study.

    Attributes:
        kind: the study as the user gave it: a name, or `module:Class`.
    """

    kind: str
    options: Options
    runs: Sequence[PlannedRun]

    @property
    def study(self) -> Study:
        """The study itself.

        Raises:
            ConfigError: the study can no longer be found.
        """
        return find_study(self.kind)

    def to_json(self) -> str:
        """The plan as JSON, with every scenario in full.

        If the study's code changes later, only the judgement changes, not the runs.
        """
        values = {
            "study": self.kind,
            "muster": VERSION,
            "options": asdict(self.options),
            "runs": [
                {
                    "part": planned.run.part,
                    "labels": dict(planned.run.labels),
                    "folder": planned.folder,
                    "expected_s": planned.run.expected_s,
                    "scenario": tomllib.loads(planned.run.scenario.to_toml()),
                }
                for planned in self.runs
            ],
        }
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> "StudyPlan":
        """Read a plan that `to_json` wrote.

        Raises:
            ConfigError: the text is not a plan, or a scenario in it is no longer valid.
        """
        try:
            values = orjson.loads(text)
            runs = [
                PlannedRun(
                    row["folder"],
                    StudyRun(
                        row["part"],
                        row["labels"],
                        settled(row["scenario"], source),
                        row["expected_s"],
                    ),
                )
                for row in values["runs"]
            ]
            return cls(values["study"], Options(**values["options"]), runs)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{source}: expected the plan that `muster study` wrote, found: {error!r}; "
                f"restore the file, or begin anew"
            ) from None


def find_study(kind: str) -> Study:
    """The study called `kind`.

    Raises:
        ConfigError: there is no such study; the message lists all studies.
    """
    try:
        return STUDIES.find(kind)(kind=kind)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def make_plan(kind: str, options: Options) -> StudyPlan:
    """Ask the study called `kind` for its runs.

    Raises:
        ConfigError: there is no such study, or it cannot be run with these options.
    """
    runs = find_study(kind).runs(options)
    if twice := [title for title, times in Counter(run.title for run in runs).items() if times > 1]:
        raise ConfigError(f"the study {kind} plans {', '.join(twice)} twice; a run is run once")
    folders = folder_names([run.title for run in runs])
    planned = [PlannedRun(f"{RUNS}/{name}", run) for name, run in zip(folders, runs, strict=True)]
    return StudyPlan(kind, options, planned)


def sizes(runs: Iterable[StudyRun], in_the_paper: Mapping[str, str]) -> Table:
    """The sizes of the runs by part, beside the sizes in the paper."""
    parts: dict[str, list[StudyRun]] = {}
    for run in runs:
        parts.setdefault(run.part, []).append(run)
    rows = [
        [
            part,
            str(len(members)),
            _span(run.scenario.devices for run in members),
            _span(run.scenario.server.rounds for run in members),
            _span(run.scenario.seed for run in members),
            f"{sum(run.expected_s for run in members) / 60:.1f}",
            in_the_paper.get(part, ""),
        ]
        for part, members in parts.items()
    ]
    header = ["part", "runs", "devices", "rounds", "seeds", "minutes", "the paper has"]
    return Table("What is run", header, rows)


def _span(values: Iterable[int]) -> str:
    """For example "300", or "100-2000"."""
    found = list(values)
    low, high = min(found), max(found)
    return f"{low}" if low == high else f"{low}-{high}"
