"""What an availability process is: whether devices can be reached at a moment.

A process is computed by every device for itself, from named streams, without a coordinator: what
the devices of a group share (an event, a draw without replacement) each of them computes from the
same stream. `muster plan` computes whole groups by the same code.

Life goes in steps: in lockstep a round is a step, on the wall clock a step lasts `clock.round_s`
scenario seconds. A draw holds for its step; a process that switches at instants of its own is
looked at when a step begins, and when a device's work ends.
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
"""Numbers for each step that are drawn at once, where a step has more of them."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBatch:
    """Devices of one group whose lives are computed together, and what they draw from.

    Attributes:
        clients: whose lives are computed here; n of them, not always the whole group.
        positions: of them in their group, from 0, shape (n,).
        size: devices of the whole group.
        z: their covariates Z by name, each of shape (n,); categories as `name=level`, 0 or 1.
        step_s: scenario seconds of a step.
        start_h: hour of the day, UTC, at scenario time 0.
        zone_h: hours that their local time is ahead of UTC, shape (n,).
        ahead: steps whose numbers are drawn at once.
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
        """The devices' own uniform numbers for a purpose.

        Args:
            every_s: scenario seconds from one index to the next; absent: a step.
        """
        ahead = self.ahead if every_s is None else self.ahead * self.step_s / every_s
        # A step may be a week, of which nobody needs every minute's number at once.
        ahead = min(ahead, _MOST_AHEAD * self.ahead)
        return Numbers(self.seed, purpose, self.clients, width, max(4, math.ceil(ahead)))

    def scene(self, step: int, x: Mapping[str, FloatArray] | None = None) -> "StepContext":
        """The beginning of a step."""
        time_s = step * self.step_s
        return StepContext(step, time_s, self.hours(np.full(len(self.clients), time_s)), x or {})

    def hours(self, times_s: FloatArray) -> FloatArray:
        """Local hour of the day, in [0, 24), at an instant for every device."""
        hours: FloatArray = (self.start_h + self.zone_h + times_s / 3600) % 24
        return hours


@dataclass(frozen=True, slots=True, eq=False)
class StepContext:
    """What a process may look at when a step begins.

    Attributes:
        step: from 0.
        time_s: scenario seconds at its beginning.
        hour: local hour of the day in [0, 24), shape (n,).
        x: covariates X by name, each of shape (n,).
    """

    step: int
    time_s: float
    hour: FloatArray
    x: Mapping[str, FloatArray]


class AvailabilityProcess:
    """The availability of a cast over time. Steps are asked for in order, as a rule."""

    def __init__(self, cast: DeviceBatch) -> None:
        self.cast = cast

    @abstractmethod
    def on(self, scene: StepContext) -> BoolArray:
        """Who is available when the step begins, shape (n,)."""

    @abstractmethod
    def chance(self, scene: StepContext) -> FloatArray:
        """Each device's own probability of `on`, given Z and X and nothing that was drawn, shape
        (n,); for oracles and plans."""

    def still_on(self, scene: StepContext, until_s: FloatArray) -> BoolArray:
        """Who is (also) available at a later instant of its own, `until_s` of shape (n,).

        X is taken to stay what it was.
        """
        steps = (until_s // self.cast.step_s).astype(np.int64)
        found = np.ones(len(steps), dtype=np.bool_)
        for step in np.unique(steps[steps > scene.step]):
            later = self.cast.scene(int(step))
            found &= (steps != step) | self.on(replace(later, x=scene.x))
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
    """A sort of availability process, with its settings."""

    absence: Literal["close", "silent"] = "close"
    """On the wall clock, how a device goes that is alone in its process: it closes its connection,
    or it keeps it and says no more, which the server notices after two heartbeats."""

    @abstractmethod
    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        """The process of some devices."""

    def closed_form(self) -> GroupEvents | FixedDraws | None:
        """The form from which the emulator computes exactly how often each device takes part; None
        if there is none."""
        return None

    def needs(self) -> tuple[set[str], set[str]]:
        """Names of the covariates Z and X that it reads; others are refused before the start."""
        return set(), set()

    def check(self, group: str, size: int, step_s: float) -> None:
        """Refuse settings that cannot be honoured, before anything starts.

        Raises:
            ValueError: a sentence without the key's path: what was found, what was expected.
        """
