"""One run of a study."""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.emulator.comparison.variants import value_text
from muster.emulator.scenario.scenario import Scenario

Label = str | int | float | bool
"""The value of a label, which distinguishes a run from others of its part and seed."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of a study.

    Attributes:
        part: the part of the study that the run belongs to, for example "A"; the table of sizes has
            a row for each part.
        labels: labels that distinguish the run from others of its part and seed, for example
            {"method": "fedipw", "strength": 1.5}. `judge` finds the run by them.
        scenario: the scenario to run; its seed is the run's seed.
        expected_s: seconds that the run should take on two cores, from start to end.
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
