"""The contract of an availability process, which says when devices can be reached.

Every device computes its process by itself from named random streams, without a coordinator. If the
devices of a group share something (an event, a draw without replacement), each of them computes it
from the same stream. `muster plan` computes whole groups by the same code.

Time goes in steps: in lockstep a round is a step, and on the wall clock a step lasts
`clock.round_s` scenario seconds. A draw holds for its step. A process that switches at any instant
is evaluated when a step begins and when a device's work ends.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from muster.common.plugins import Plugin
from muster.common.seeds import BoolArray, FloatArray, IntArray, Numbers

_MOST_AHEAD = 4
"""Most numbers per step that are drawn at once, if `every_s` is shorter than a step."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBatch:
    """The devices of one group that are simulated together, and the source of their random numbers.

    Attributes:
        clients: names of the n simulated devices, which are not always the whole group.
        positions: their positions in the group, from 0, shape (n,).
        size: number of devices in the whole group.
        z: their covariates Z by name, each of shape (n,); categories as `name=level`, 0 or 1.
        step_s: length of a step in scenario seconds.
        start_h: hour of the day, UTC, at scenario time 0.
        zone_h: hours by which their local time is ahead of UTC, shape (n,).
        ahead: number of steps for which random numbers are drawn at once.
    """

    seed: int
    group: str
    clients: Sequence[str]
    positions: IntArray
    size: int
    z: Mapping[str, FloatArray]
    step_s: float
    start_h: float
    zone_h: FloatArray
    ahead: int = 64

    def numbers(self, *purpose: str | int, width: int = 1, every_s: float | None = None) -> Numbers:
        """Uniform numbers for a purpose, for each device its own.

        Args:
            width: numbers per index.
            every_s: scenario seconds from one index to the next; None: a step.
        """
        ahead = self.ahead if every_s is None else self.ahead * self.step_s / every_s
        # A step may be a week long, and nobody needs the numbers of all its minutes at once.
        ahead = min(ahead, _MOST_AHEAD * self.ahead)
        return Numbers(self.seed, purpose, self.clients, width, max(4, math.ceil(ahead)))

    def scene(self, step: int, x: Mapping[str, FloatArray] | None = None) -> "StepContext":
        """The context of a step, at its beginning."""
        time_s = step * self.step_s
        return StepContext(step, time_s, self.hours(np.full(len(self.clients), time_s)), x or {})

    def hours(self, times_s: FloatArray) -> FloatArray:
        """Local hour of the day in [0, 24) at `times_s`, one instant for every device."""
        hours: FloatArray = (self.start_h + self.zone_h + times_s / 3600) % 24
        return hours


@dataclass(frozen=True, slots=True, eq=False)
class StepContext:
    """The context of a step that a process may read.

    Attributes:
        step: number of the step, from 0.
        time_s: scenario seconds at the beginning of the step.
        hour: local hour of the day in [0, 24), shape (n,).
        x: covariates X by name, each of shape (n,).
    """

    step: int
    time_s: float
    hour: FloatArray
    x: Mapping[str, FloatArray]


class AvailabilityProcess:
    """The availability of a batch of devices over time. Steps are usually asked for in order."""

    def __init__(self, batch: DeviceBatch) -> None:
        self.batch = batch

    @abstractmethod
    def on(self, context: StepContext) -> BoolArray:
        """Whether each device is available when the step begins, shape (n,)."""

    @abstractmethod
    def chance(self, context: StepContext) -> FloatArray:
        """Each device's probability of being `on`, shape (n,); for oracles and plans.

        The probability is given Z and X, but not given anything that the process draws.
        """

    def still_on(self, context: StepContext, until_s: FloatArray) -> BoolArray:
        """Whether each device is available at a later instant too.

        X is assumed to stay the same.

        Args:
            until_s: scenario seconds, an instant for every device, shape (n,).
        """
        steps = (until_s // self.batch.step_s).astype(np.int64)
        found = np.ones(len(steps), dtype=np.bool_)
        for step in np.unique(steps[steps > context.step]):
            later = self.batch.scene(int(step))
            found &= (steps != step) | self.on(replace(later, x=context.x))
        return found


@dataclass(frozen=True)
class GroupEvents:
    """The closed form in which something happens to a whole group in a step, or not.

    Attributes:
        event: the probability that it happens; in the other steps nobody is available.
        device: the probability of each device to be available when it happens, independently.
    """

    event: float
    device: float


@dataclass(frozen=True)
class FixedDraws:
    """The closed form in which exactly k devices of a group are available in every step, drawn
    without replacement.

    Attributes:
        weights: of the devices of a group of a size, each > 0, shape (size,).
    """

    k: int
    weights: Callable[[int], FloatArray]


class Availability(Plugin):
    """The settings of an availability process; makes the process."""

    absence: Literal["close", "silent"] = "close"
    """How a device that is alone in its process goes away on the wall clock. close: it closes its
    connection. silent: it keeps the connection but sends nothing more, which the server notices
    after two heartbeats."""

    @abstractmethod
    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        """Make the process of a batch of devices."""

    def closed_form(self) -> GroupEvents | FixedDraws | None:
        """The form from which the emulator computes exactly how often each device takes part.

        With None, which is the default, aggregators that need these shares refuse the scenario. A
        third form also needs its formula in `muster.emulator.fleet.group_shares`, a branch in
        `muster.emulator.planning.oracle`, and a test in `tests/unit/emulator/test_exact.py`.

        Returns:
            `GroupEvents` if an event happens to the whole group or not, and its devices are then
            available independently of each other. `FixedDraws` if exactly k devices are drawn
            without replacement. None if there is no closed form.
        """
        return None

    def needs(self) -> tuple[set[str], set[str]]:
        """Names of the covariates Z and X that the process reads.

        A scenario without one of them is refused before the start.
        """
        return set(), set()

    def check(self, group: str, size: int, step_s: float) -> None:
        """Refuse settings that cannot work, before anything starts.

        Raises:
            ValueError: the settings cannot work. The message says what was found and what was
                expected, without the key's path.
        """
