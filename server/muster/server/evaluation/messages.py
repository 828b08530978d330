"""The messages between the server and its evaluation process. The server imports them without what
opens tasks."""

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from pydantic import Field

from muster.common.config import Section
from muster.common.errors import RunFailed

FAILED = "failed"
"""The key of the reason, in the last line of an evaluation that cannot go on."""

_NONE: dict[str, float] = {}


class Part(NamedTuple):
    """The result of a model on a part of the examples.

    Attributes:
        examples: number of examples; > 0.
        loss: mean over the examples.
        accuracy: share of right predictions; None if the task's predictions are not right or wrong.
        metrics: the task's other metrics, by name.
    """

    examples: int
    loss: float
    accuracy: float | None
    metrics: dict[str, float] = _NONE


class Setup(Section):
    """The configuration of the evaluation process, with which it opens the task as devices do."""

    task: str
    """JSON of the scenario's [task]."""

    population: int
    seed: int

    groups: list[str] = Field(default=[])
    """The group of every device, by position; empty if groups are not measured."""

    clients: list[str] = Field(default=[])
    """The name of every device, by position; empty if devices are not measured."""


class Order(Section):
    """The header of a model, whose body follows."""

    version: int
    round: int
    length: int
    """Bytes of the body."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of evaluating a model. A loss may be infinite or NaN, which Python's JSON allows.

    Attributes:
        metrics: the task's other metrics, by name.
        seconds: wall seconds that the evaluation took.
        groups: by name; empty if groups are not measured.
        devices: by name; empty if devices are not measured.
    """

    version: int
    round: int
    loss: float
    accuracy: float | None
    metrics: dict[str, float]
    seconds: float
    groups: dict[str, Part] = field(default_factory=dict)
    devices: dict[str, Part] = field(default_factory=dict)

    @classmethod
    def from_json(cls, line: bytes) -> "EvaluationResult":
        """Return the result of which `to_json` wrote the line.

        Raises:
            RunFailed: the evaluation says that it cannot go on, and why.
        """
        values = json.loads(line)
        if FAILED in values:
            raise RunFailed(f"the evaluation failed: {values[FAILED]}")
        for parts in ("groups", "devices"):
            values[parts] = {name: Part(*part) for name, part in values[parts].items()}
        return cls(**values)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()
