"""The scenario: one TOML file that describes a whole experiment."""

from typing import Self

from pydantic import model_validator

from muster.emulator.scenario.contradictions import contradictions
from muster.emulator.scenario.energy_refusals import energy_refusals
from muster.emulator.scenario.recorded_life import as_played, record_refusals
from muster.emulator.scenario.settings import ScenarioSettings


class Scenario(ScenarioSettings):
    """A whole experiment."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        played = contradictions(as_played(self))
        mistakes = [*record_refusals(self), *energy_refusals(self), *played]
        if mistakes:
            raise ValueError("\n".join(mistakes))
        return self
