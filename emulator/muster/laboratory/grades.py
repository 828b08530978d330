"""The grades of a what-if: what a played run takes from its record, and what it decides anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from muster.client.faults.contract import UpdateFault
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario

_SERVER = "server.mode", "server.deadline_s", "server.goal", "server.selection"
_DEVICES = tuple(
    f"groups.{part}" for part in ("device", "availability", "participation", "link", "shared_link")
)

_UNREPLACED = {"groups.device": {"capacity", "torch_device"}, "groups.link": {"compression"}}
"""The parts of a setting that a played run has as the scenario says."""


class Grade(NamedTuple):
    """What is taken from the record.

    Attributes:
        kept: what a played run has in common with the recorded one, as a part of a sentence.
        anew: what a change may alter beyond the model; empty: nothing.
        replaced: the settings that have no effect, because the record has what they decide.
        recorded: whether the run is played from a life record; otherwise only the seed is kept.
    """

    name: str
    kept: str
    anew: str
    replaced: tuple[str, ...]
    recorded: bool = True

    def played(self, scenario: Scenario, life: Path) -> Iterator[tuple[str, Any]]:
        """Yield the settings with which a recorded scenario is played in virtual time."""
        lockstep = scenario.clock.lockstep
        if self.recorded:
            yield "life", {"record": str(life), "grade": self.name}
        if self.name == "arrivals":
            yield "clock.kind", "rounds"
        elif not lockstep:
            yield "clock.kind", "modelled"
        yield "clock.scale", 1.0
        if not lockstep and scenario.server.deadline_s is not None:  # it has wall seconds
            yield "server.deadline_s", scenario.server.deadline_s * scenario.clock.scale

    def require_effect(self, recorded: Scenario, changed: Scenario) -> None:
        """Check that no change is one of the seed, or of a setting whose place the record takes.

        Raises:
            ConfigError: one is.
        """
        if recorded.seed != changed.seed:
            raise ConfigError(
                f"seed: every grade keeps that of the recorded run, because data, initial model "
                f"and batches follow from it; expected {recorded.seed}, found {changed.seed}. "
                f"`muster compare --seeds` plays other seeds"
            )
        for name in self.replaced:
            if _values(recorded, name) != _values(changed, name):
                raise ConfigError(
                    f"{name}: with the grade {self.name}, {self.kept}, so this change would have "
                    f"no effect; use --grade {_lower(name)}"
                )


def _values(scenario: Scenario, name: str) -> list[Any]:
    """What a record can replace in a setting of the server or of groups, or in faults."""
    part, _, key = name.partition(".")
    if part == "faults":
        return [fault for fault in scenario.faults if not isinstance(fault.do, UpdateFault)]
    places = scenario.groups if part == "groups" else [scenario.server]
    values = [getattr(place, key) for place in places]
    if unreplaced := _UNREPLACED.get(name):
        return [value.model_dump(exclude=unreplaced) for value in values]
    return values


def _lower(name: str) -> str:
    grades = [grade.name for grade in GRADES.values() if name not in grade.replaced]
    return " or --grade ".join(grades)


GRADES = {
    grade.name: grade
    for grade in (
        Grade(
            "arrivals",
            "the same devices train in every round, and the same updates count with the same "
            "staleness",
            "",
            (*_SERVER, *_DEVICES, "faults"),
        ),
        Grade(
            "life",
            "the recorded answers and durations of every device and round are the same",
            "who is selected, whose updates count, their staleness, and how long rounds last",
            (*_DEVICES, "faults"),
        ),
        Grade(
            "resimulated",
            "the seeds of the scenario's models are the same",
            "who is there, what devices answer, how long they take, and whose updates count",
            (),
            recorded=False,
        ),
    )
}
