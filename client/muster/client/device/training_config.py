"""The training that a device is asked for, and how it got the model."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from muster.client.training.settings import Training
from muster.common.tensors import Schema


@dataclass(frozen=True)
class TrainingConfig:
    """The training that the server announced when the device enrolled.

    Attributes:
        inline: whether models and updates travel inside the Attend stream.
    """

    run: str
    seed: int
    training: Training
    schema: Schema
    inline: bool
    heartbeat_s: float

    @cached_property
    def entries(self) -> int:
        """Number of entries of a download of the whole model, and of an update of it: its
        parameters, or twice as many with control variates."""
        return self.schema.parameters * self.training.vectors


class DownloadTimes(NamedTuple):
    """How a device got a model, and how long that took.

    Attributes:
        at: UNIX seconds when the device asked for the model; 0: it came with the call.
        wait_s: the part of `seconds` before the first byte.
        seconds: wall seconds from asking for the model to its last byte.
    """

    at: float = 0.0
    wait_s: float = 0.0
    seconds: float = 0.0
