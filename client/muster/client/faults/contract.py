"""The contract of faults that act inside a device: on its life, or on its updates.

A device gets its faults with its configuration, each with the rounds or steps in which it acts.
Whether a fault acts is therefore a function of the round or of the step alone, and a device that
was killed and works for a round again does the same again.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from muster.client.training.trainer import Trained
from muster.common.exchange import Body
from muster.common.faults import LedgerTrace, TracedFault
from muster.common.requirements import Requirement
from muster.tasks.task import Examples


class LifeEffect(NamedTuple):
    """What faults do to a device's life in a step.

    If several faults act in the same step, the device is offline, unplugged or on a metered
    network if any of them says so; drains add up, and slowdowns multiply.

    Attributes:
        drain_per_h: share of the full battery that is lost in an hour beside its usual drain.
        slowdown: factor of the modelled seconds of training.
    """

    offline: bool = False
    unplugged: bool = False
    metered: bool = False
    drain_per_h: float = 0.0
    slowdown: float = 1.0


class LifeFault(TracedFault):
    """A fault of a device's life. It acts in whole steps."""

    def effect(self) -> LifeEffect:
        """What the fault does in each step in which it acts."""
        raise NotImplementedError


class UpdateFault(TracedFault):
    """A fault of what a device trains and sends. Several of them act one after the other, in the
    order of the scenario; each gets what the one before has made.
    """

    def poison(self, examples: Examples, classes: int) -> Examples:
        """The examples from which the device trains.

        Args:
            examples: the device's own, which must not be changed.
            classes: number of outputs of the model: of classes, if the task classifies.

        Raises:
            ConfigError: the fault has no meaning for these examples.
        """
        return examples

    def tamper(self, trained: Trained, draws: np.random.Generator) -> Trained:
        """What the device reports of its training.

        Args:
            trained: the honest result; its delta must not be changed.
            draws: random numbers of this fault, device and round.
        """
        return trained

    def rewrite(self, body: Body) -> Body:
        """The bytes that the device sends as its update."""
        return body

    def damage(self, body: Body, draws: np.random.Generator) -> Sequence[Body]:
        """What arrives in place of the body before it arrives whole, one after the other; without
        what equals the body."""
        return ()

    def copies(self) -> int:
        """How often the device sends its update once more."""
        return 0

    def repeats_last(self) -> bool:
        """Whether the device also sends again the update of the round before, under its old key."""
        return False

    def observed(self, trace: LedgerTrace) -> bool:
        """By default: the server has judged an update that the device sent under the fault."""
        return bool(trace.updates)

    def gone(self, trace: LedgerTrace) -> bool:
        """The server took an update that the device sent after the fault."""
        return any(outcome in ("folded", "late", "dropped") for outcome, _ in trace.updates)


def not_one(factor: float) -> float:
    """The factor of a fault, which must change something.

    Raises:
        ValueError: it is 1.
    """
    if factor == 1:
        raise ValueError("1 changes nothing; expected another factor, or leave out the fault")
    return factor


class DamagedUpdate(UpdateFault):
    """A fault of the way of an update: its header is right, and its body does not match it."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.SENT_UPDATE})

    times: Annotated[int, Field(ge=1, le=4)] = 1
    """How often an update is damaged before it arrives whole. A device that has failed five times
    begins a new session."""

    def observed(self, trace: LedgerTrace) -> bool:
        """The server refused a body because of its checksum."""
        return ("refused", "checksum") in trace.updates
